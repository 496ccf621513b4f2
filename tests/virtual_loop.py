"""An event loop whose time passes only when nobody has anything to do: then at once to the next
timer. Everything that waits by asyncio waits in it, and a minute takes as long as its work."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _NoWait(selectors.SelectSelector):
    """Tells how long it would have waited."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everybody waits, and no timer runs")
        self.skipped_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time` is its clock, from 1000 on: a `Clock`."""

    def __init__(self) -> None:
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self) -> float:
        return 1000.0 + self._no_wait.skipped_s


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """As asyncio.run, in a loop of that kind."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
