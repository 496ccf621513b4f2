"""The requests inside this process, and the door that a drain closes.

open -> draining (no new ones) -> idle (none left)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.errors import Draining

DRAIN_RETRY_AFTER_S = 1.0


class InFlight:
    """Counts requests. All calls from the event loop's thread."""

    def __init__(self) -> None:
        self._count = 0
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def count(self) -> int:
        """Requests that have entered and not left."""
        return self._count

    @property
    def is_draining(self) -> bool:
        """True once `drain` was called."""
        return self._draining

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Around a request's whole life. Raises Draining when the door is closed."""
        if self._draining:
            raise Draining(
                "this router is shutting down; send the request to another one",
                retry_after_s=DRAIN_RETRY_AFTER_S,
            )
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    def close_door(self) -> None:
        """No new requests from here on."""
        self._draining = True

    async def wait_idle(self, timeout_s: float) -> bool:
        """True when every request has left in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
