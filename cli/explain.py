"""`splitserve explain`: why a request went where it went, every term of every price."""

from __future__ import annotations

import asyncio
import sys

from cli.decision_view import fields_of, table_of
from cli.exit_code import ExitCode
from cli.fleet_address import routers_of
from cli.json_output import print_data
from cli.terminal import complain, shown
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.join_token import operators_token
from protos import router_admin_pb2

ROUTER_TIMEOUT_S = 5.0


_Answer = list[router_admin_pb2.Decision] | SplitserveError
"""Of one router: what it has of a request, or why it says nothing."""


def explain_request(addresses: str, request_id: str, *, output: str) -> ExitCode:
    """`addresses`: of one router or several, between commas, which are asked side by side.

    UNREACHABLE when none answers; FAILED when none has a decision under that id.
    """
    routers = routers_of(addresses)
    answers = dict(zip(routers, asyncio.run(_ask_all(routers, request_id)), strict=True))
    for router, answer in answers.items():
        if isinstance(answer, SplitserveError):
            complain(
                f"the router does not answer at {router}: {answer.message}",
                remedy="name it with --grpc HOST:PORT",
            )
    found = {router: said for router, said in answers.items() if isinstance(said, list)}
    if not found:
        return ExitCode.UNREACHABLE
    _show(found, output=output)
    if not any(found.values()):
        complain(
            f"the router has no decision for request {request_id!r}: it was never routed, or is "
            "too long ago",
            remedy="use the X-Request-Id of its answer",
        )
        return ExitCode.FAILED
    return ExitCode.OK


def _show(found: dict[str, list[router_admin_pb2.Decision]], *, output: str) -> None:
    """With the router's address where several were asked."""
    several = len(found) > 1
    told = [(router, decision) for router, said in found.items() for decision in said]
    data = [_named(router, several) | fields_of(decision) for router, decision in told]
    if print_data(data, output):
        return
    texts = [f"at {router}\n" * several + table_of(decision) for router, decision in told]
    print(shown("\n\n".join(texts), sys.stdout), end="\n" * bool(texts))


def _named(router: str, several: bool) -> dict[str, object]:
    return {"router": router} if several else {}


async def _ask_all(routers: list[str], request_id: str) -> list[_Answer]:
    dialer = GrpcDialer(operators_token())
    return await asyncio.gather(*(_ask(dialer, router, request_id) for router in routers))


async def _ask(dialer: Dialer, address: str, request_id: str) -> _Answer:
    request = router_admin_pb2.ExplainRequest(request_id=request_id)
    link = dialer.operator(address)
    try:
        return list((await link.explain(request, timeout_s=ROUTER_TIMEOUT_S)).decisions)
    except SplitserveError as failure:
        return failure
    finally:
        await link.close()
