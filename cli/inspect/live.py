"""`top` on a terminal: a screen of its own, left as it was found; elsewhere a line a look."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from datetime import datetime

from cli.exit_code import ExitCode
from cli.inspect.top import LINE_HEADING, FleetLook, fitted, line_of, look_at, sheets_of
from cli.question import complained
from cli.terminal import say, shown
from cluster.deadline import Sleep
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import DeadlineExceeded, SplitserveError, WorkerLost
from cluster.join_token import operators_token
from cluster.terminal_text import plain

_WIDTHS = tuple(max(len(name), 8) for name in LINE_HEADING)
LookOrFailure = FleetLook | SplitserveError
"""Of one look: or that the router did not answer."""


def show_live(
    address: str,
    every_s: float,
    *,
    dialer: Dialer | None = None,
    sleep: Sleep = asyncio.sleep,
) -> ExitCode:
    """Until Ctrl-C, which is its usual end: OK. A router that is away for a while is asked again;
    REFUSED without its token."""
    dialer = dialer or GrpcDialer(operators_token())
    showing = _on_screen if sys.stdout.isatty() else _in_lines
    looks = _looks(dialer, address, every_s, sleep)
    try:
        asyncio.run(showing(looks, address))
    except KeyboardInterrupt:
        return ExitCode.OK
    except SplitserveError as failure:
        return complained(failure, address)
    return ExitCode.OK


async def _looks(
    dialer: Dialer, address: str, every_s: float, sleep: Sleep
) -> AsyncGenerator[LookOrFailure, None]:
    """Without an end. Raises what asking again does not mend."""
    router = dialer.operator(address)
    try:
        while True:
            try:
                yield await look_at(router)
            except (WorkerLost, DeadlineExceeded) as failure:
                yield failure
            await sleep(every_s)
    finally:
        await router.close()


async def _on_screen(looks: AsyncGenerator[LookOrFailure, None], address: str) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, last = Console(highlight=False), ""
    async with contextlib.aclosing(looks) as seen:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            async for look in seen:
                if isinstance(look, FleetLook):
                    first = f"splitserve top  {address}  {datetime.now():%H:%M:%S}  Ctrl-C ends it"
                    last = fitted(sheets_of(look), console.width)
                else:
                    first = f"NO ANSWER from {address}; below is what was last seen"
                text = plain(f"{first[: console.width]}\n\n{last}")
                live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)


async def _in_lines(looks: AsyncGenerator[LookOrFailure, None], address: str) -> None:
    is_first = is_there = True
    async with contextlib.aclosing(looks) as seen:
        async for look in seen:
            if isinstance(look, SplitserveError):
                if is_there:
                    say(f"the router does not answer at {address}: {look.message}")
                is_there = False
                continue
            is_there = True
            if is_first:
                _print_row(LINE_HEADING)
            is_first = False
            _print_row(line_of(look, datetime.now()))


def _print_row(cells: tuple[str, ...]) -> None:
    line = "  ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    print(shown(line, sys.stdout), flush=True)
