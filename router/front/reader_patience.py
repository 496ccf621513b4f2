"""How long a client may leave an answer unread.

A timeout around each write costs a third of what an event costs, so each door does without, as it
can. HTTP knows when its client is behind, and only then has a timer, for one write: the answer's
events and its pings are written by two tasks. gRPC never knows, and writes from one task: it has
one timer for the whole answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType

from cluster.deadline import Clock
from cluster.errors import Cancelled


class ReaderPatience:
    """One timer around an answer's writes, all of them from the task that entered this context."""

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._began_s: float | None = None
        """Of the write under way."""
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancels_before = 0
        self._is_over = False

    async def __aenter__(self) -> ReaderPatience:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancels_before = self._task.cancelling()
        self._arm(self._timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def write(self, write: Awaitable[None]) -> None:
        """Raises Cancelled when the client does not read for so long."""
        assert self._task is not None, "not entered"
        self._began_s = self._clock()
        try:
            await write
        except asyncio.CancelledError:
            if self._is_over and self._task.uncancel() <= self._cancels_before:
                raise _unread(self._timeout_s) from None
            raise
        self._began_s = None

    def _arm(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        waited_s = 0.0 if self._began_s is None else self._clock() - self._began_s
        if waited_s < self._timeout_s:
            self._arm(self._timeout_s - waited_s)
            return
        self._is_over = True
        assert self._task is not None
        self._task.cancel()


async def within_reader_timeout(write: Awaitable[None], timeout_s: float) -> None:
    """One write to a client that is behind. Raises Cancelled when it does not read for so long."""
    try:
        async with asyncio.timeout(timeout_s):
            await write
    except TimeoutError:
        raise _unread(timeout_s) from None


def _unread(timeout_s: float) -> Cancelled:
    return Cancelled(f"the client did not read its answer for {timeout_s:g} s")
