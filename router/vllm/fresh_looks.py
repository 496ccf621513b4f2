"""A server's numbers as of the moment at which they are asked for, at two looks for however many.

asked -> a look is under way: it may be older; the next one is for all who wait by then
     '-> none is: one begins
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cluster.errors import SplitserveError
from router.vllm.server_numbers import ServerNumbers


class FreshLooks:
    """Of one server. From the event loop only."""

    def __init__(self, look: Callable[[], Awaitable[ServerNumbers]]) -> None:
        """`look` ends within a bounded time."""
        self._look = look
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
                self._num_begun += 1
                self._numbers, self._last = await self._looked(), self._num_begun
            return self._numbers

    async def _looked(self) -> ServerNumbers | None:
        try:
            return await self._look()
        except SplitserveError:
            return None
