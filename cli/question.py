"""One way from a command to a router: ask, show in one of four forms, and again while watched."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from cli.exit_code import ExitCode
from cli.terminal import complain
from cli.view import View
from cluster.deadline import Sleep
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import (
    DeadlineExceeded,
    NotAllowed,
    NotReady,
    SplitserveError,
    WorkerLost,
    WrongToken,
)
from cluster.join_token import operators_token

ROUTER_TIMEOUT_S = 5.0
"""Of each call to a router."""
CLEAR = "\x1b[H\x1b[2J"

Ask = Callable[[OperatorLink], Awaitable[View]]
"""Makes what is shown of a router's answers. Raises SplitserveError, and NotFound."""


class NotFound(Exception):
    """The router answers, and has no such thing; the message says which."""


@dataclass(frozen=True, slots=True)
class Showing:
    """How a view is shown."""

    form: str = "table"
    every_s: float | None = None
    """Again after so many seconds, until Ctrl-C; None: once."""


def ask_router(
    address: str,
    ask: Ask,
    showing: Showing,
    *,
    dialer: Dialer | None = None,
    sleep: Sleep = asyncio.sleep,
) -> ExitCode:
    """UNREACHABLE without a router, REFUSED without its token, FAILED where it has no such thing.
    A view that is watched outlives a router that is away for a while."""
    dialer = dialer or GrpcDialer(operators_token())
    return asyncio.run(_Asking(dialer, address, ask, showing, sleep).run())


def ask_until_found(
    addresses: Sequence[str], ask: Ask, showing: Showing, *, dialer: Dialer | None = None
) -> ExitCode:
    """Routers one after the other, until one has what is asked for. Where none has, FAILED if any
    answered, else what the last one came to."""
    dialer = dialer or GrpcDialer(operators_token())
    return asyncio.run(_ask_until_found(dialer, addresses, ask, showing))


async def _ask_until_found(
    dialer: Dialer, addresses: Sequence[str], ask: Ask, showing: Showing
) -> ExitCode:
    code, missing = ExitCode.UNREACHABLE, ""
    for address in addresses:
        link = dialer.operator(address)
        try:
            (await ask(link)).print(showing.form)
            return ExitCode.OK
        except SplitserveError as failure:
            code = complained(failure, address)
        except NotFound as failure:
            missing = str(failure)
        finally:
            await link.close()
    if not missing:
        return code
    complain(missing)
    return ExitCode.FAILED


@dataclass(frozen=True, slots=True)
class _Asking:
    dialer: Dialer
    address: str
    ask: Ask
    showing: Showing
    sleep: Sleep

    async def run(self) -> ExitCode:
        link = self.dialer.operator(self.address)
        try:
            code = await self._once(link)
            while self.showing.every_s is not None and code in _PASSING:
                await self.sleep(self.showing.every_s)
                code = await self._once(link)
            return code
        finally:
            await link.close()

    async def _once(self, link: OperatorLink) -> ExitCode:
        try:
            view = await self.ask(link)
        except SplitserveError as failure:
            return complained(failure, self.address)
        except NotFound as failure:
            complain(str(failure))
            return ExitCode.FAILED
        if self.showing.every_s is not None and sys.stdout.isatty():
            print(CLEAR, end="")
        view.print(self.showing.form)
        return ExitCode.OK


_PASSING = (ExitCode.OK, ExitCode.UNREACHABLE)
"""What a watch goes on after."""


def complained(failure: SplitserveError, address: str) -> ExitCode:
    """Tells the operator, and what that means for the command."""
    if isinstance(failure, (WorkerLost, DeadlineExceeded)):
        complain(
            f"the router does not answer at {address}: {failure.message}",
            remedy="name it with --grpc HOST:PORT",
        )
        return ExitCode.UNREACHABLE
    complain(failure.message)
    is_refusal = isinstance(failure, (WrongToken, NotAllowed, NotReady))
    return ExitCode.REFUSED if is_refusal else ExitCode.FAILED
