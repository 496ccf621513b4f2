"""A server's numbers as of the moment at which they are asked for, at two looks for however many.

asked -> a look is under way: it may be older; the next one is for all who wait by then
     '-> none is: one begins, a while after the last where that is asked for
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from cluster.deadline import Clock, Sleep
from cluster.errors import SplitserveError
from router.vllm.server_numbers import ServerNumbers


class FreshLooks:
    """Of one server. From the event loop only."""

    def __init__(
        self,
        look: Callable[[], Awaitable[ServerNumbers]],
        *,
        gap_s: float = 0.0,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`look` ends within a bounded time. `gap_s`: from the beginning of one to the next."""
        self._look = look
        self._gap_s, self._clock, self._sleep = gap_s, clock, sleep
        self._began_s = -math.inf
        self._lock = asyncio.Lock()
        self._num_begun = self._last = 0
        """The looks are counted; `_last` is the last one that came to its end."""
        self._numbers: ServerNumbers | None = None

    async def by_now(self) -> ServerNumbers | None:
        """Of a look that has begun since; None where the server could not be asked. One that is
        cancelled tells the others nothing: the next of them looks."""
        asked = self._num_begun
        async with self._lock:
            if self._last <= asked:
                await self._keep_the_gap()
                self._num_begun += 1
                self._numbers, self._last = await self._looked(), self._num_begun
            return self._numbers

    async def _keep_the_gap(self) -> None:
        if not self._gap_s:
            return
        if (wait_s := self._began_s + self._gap_s - self._clock()) > 0:
            await self._sleep(wait_s)
        self._began_s = self._clock()

    async def _looked(self) -> ServerNumbers | None:
        try:
            return await self._look()
        except SplitserveError:
            return None
