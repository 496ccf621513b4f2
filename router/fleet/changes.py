"""News of the fleet, for those who wait for some of it and those who hear all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changes:
    """Announced when a worker comes, goes, is connected or begins to drain. All calls from the
    event loop."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()
        self._watchers: list[Callable[[], None]] = []

    def watch(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called with every announcement; must return at once and not raise."""
        self._watchers.append(on_change)

    def announce(self) -> None:
        """Something has changed already."""
        self._happened.set()
        for on_change in self._watchers:
            on_change()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once it is true; looks after every announcement."""
        while not condition():
            self._happened.clear()
            await self._happened.wait()
