"""`splitserve explain`: why a request went where it went, every term of every price."""

from __future__ import annotations

import asyncio
import sys

from cli.decision_view import fields_of, table_of
from cli.exit_code import ExitCode
from cli.json_output import print_json
from cli.terminal import complain, shown
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.join_token import operators_token
from protos import router_admin_pb2

ROUTER_TIMEOUT_S = 5.0


def explain_request(address: str, request_id: str, *, output: str) -> ExitCode:
    """UNREACHABLE without a router; FAILED when it has no decision under that id."""
    try:
        decisions = asyncio.run(_ask(GrpcDialer(operators_token()), address, request_id))
    except SplitserveError as failure:
        complain(
            f"the router does not answer at {address}: {failure.message}",
            remedy="name it with --grpc HOST:PORT",
        )
        return ExitCode.UNREACHABLE
    if output == "json":
        print_json([fields_of(decision) for decision in decisions])
    else:
        text = "\n\n".join(table_of(decision) for decision in decisions)
        print(shown(text, sys.stdout), end="\n" * bool(decisions))
    if not decisions:
        complain(
            f"the router has no decision for request {request_id!r}: it was never routed, or is "
            "too long ago",
            remedy="use the X-Request-Id of its answer",
        )
        return ExitCode.FAILED
    return ExitCode.OK


async def _ask(dialer: Dialer, address: str, request_id: str) -> list[router_admin_pb2.Decision]:
    request = router_admin_pb2.ExplainRequest(request_id=request_id)
    link = dialer.operator(address)
    try:
        return list((await link.explain(request, timeout_s=ROUTER_TIMEOUT_S)).decisions)
    finally:
        await link.close()
