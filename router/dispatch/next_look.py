"""When a line is looked over again though nothing was heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.deadline import Clock

LOOK_INTERVAL_S = 0.001
"""At least, between two looks that nothing was heard before."""


class NextLook:
    """Of one line: one timer at most. From the event loop only."""

    def __init__(self, look: Callable[[], None], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = 0.0

    def within(self, *seconds: float | None) -> None:
        """At the soonest time that was asked for; None: nobody knows when."""
        known = [each for each in seconds if each is not None]
        if not known:
            return
        in_s = max(LOOK_INTERVAL_S, min(known))
        at_s = self._clock() + in_s
        if self._timer is not None:
            if self._at_s <= at_s:
                return
            self._timer.cancel()
        self._at_s = at_s
        self._timer = asyncio.get_running_loop().call_later(in_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._look()
