"""`splitserve adapters`: which LoRA adapters the workers of a fleet have, and orders to them.

exit code 0 done, 1 a worker refused, 3 no router
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cli.exit_code import ExitCode
from cli.question import ROUTER_TIMEOUT_S, Showing, ask_router, complained
from cli.terminal import complain, say
from cli.view import Sheet, View
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.join_token import operators_token
from protos.membership_pb2 import AdapterAnswer, MembersResponse
from protos.worker_pb2 import LoadAdapterRequest, UnloadAdapterRequest

ORDER_TIMEOUT_S = 90.0
"""Longer than a router waits for a worker that reads files."""


def list_adapters(address: str, form: str, *, dialer: Dialer | None = None) -> ExitCode:
    """By name, version and worker."""

    async def ask(router: OperatorLink) -> View:
        return view_of(await router.members(timeout_s=ROUTER_TIMEOUT_S))

    return ask_router(address, ask, Showing(form), dialer=dialer)


def load_adapter(address: str, name: str, path: str, *, dialer: Dialer | None = None) -> ExitCode:
    """Every worker gives the name to the adapter in that folder."""
    request = LoadAdapterRequest(name=name, path=path)
    return _order(
        address, lambda router: router.order_load(request, timeout_s=ORDER_TIMEOUT_S), dialer
    )


def unload_adapter(address: str, name: str, *, dialer: Dialer | None = None) -> ExitCode:
    """No worker takes requests for that name any more."""
    request = UnloadAdapterRequest(name=name)
    return _order(
        address, lambda router: router.order_unload(request, timeout_s=ORDER_TIMEOUT_S), dialer
    )


def view_of(told: MembersResponse) -> View:
    """A row for each adapter of each worker."""
    rows = [
        {
            "name": adapter.name,
            "digest": adapter.digest,
            "worker": state.member.worker_id,
            "role": state.member.role,
            "resident": adapter.resident,
        }
        for state in told.members
        for adapter in state.adapters
    ]
    rows.sort(key=lambda row: (str(row["name"]), str(row["digest"]), str(row["worker"])))
    heading = ("NAME", "DIGEST", "WORKER", "ROLE", "IN MEMORY")
    cells = [
        (*(str(row[key]) for key in ("name", "digest", "worker", "role")), _word(row["resident"]))
        for row in rows
    ]
    return View(data=rows, sheets=[Sheet(heading=heading, rows=cells)])


def _word(is_so: object) -> str:
    return "yes" if is_so else "no"


def _order(
    address: str,
    order: Callable[[OperatorLink], Awaitable[AdapterAnswer]],
    dialer: Dialer | None,
) -> ExitCode:
    async def give() -> AdapterAnswer:
        router = (dialer or GrpcDialer(operators_token())).operator(address)
        try:
            return await order(router)
        finally:
            await router.close()

    try:
        answer = asyncio.run(give())
    except SplitserveError as failure:
        return complained(failure, address)
    return _told(answer)


def _told(answer: AdapterAnswer) -> ExitCode:
    code = ExitCode.OK
    for outcome in answer.outcomes:
        if outcome.code:
            complain(f"{outcome.worker_id}: {outcome.message} ({outcome.code})")
            code = ExitCode.FAILED
        else:
            say(f"{outcome.worker_id}: {outcome.digest or 'done'}")
    if not answer.outcomes:
        complain("no worker has joined")
        code = ExitCode.FAILED
    return code
