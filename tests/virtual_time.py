"""Time for a World that no real time passes in."""

from __future__ import annotations

import asyncio
import heapq

TURNS_TO_SETTLE = 30
"""Of the loop: more than any chain of tasks here takes from a cause to its last effect."""


class VirtualTime:
    """Seconds, from 1000 on: a `Clock`, and `sleep` a `Sleep`. It passes by `advance` only, which
    wakes who sleeps one after the other, each at its own moment."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._num_sleepers = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._num_sleepers += 1
        heapq.heappush(self._sleepers, (self.now_s + seconds, self._num_sleepers, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Returns when all that had to happen until then has happened."""
        end_s = self.now_s + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            self.now_s, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # else it was cancelled
                woken.set_result(None)
            await settle()
        self.now_s = end_s


async def settle() -> None:
    """Lets everything happen that needs no time."""
    for _ in range(TURNS_TO_SETTLE):
        await asyncio.sleep(0)
