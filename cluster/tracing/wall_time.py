"""From stamps of a process's monotonic clock to the time of day: here and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.deadline import Clock

WallClock = Callable[[], int]
"""Nanoseconds since 1970."""


class WallTime:
    """How the two clocks stand to each other in the moment when this is made: one for all stamps of
    a request, so that a clock that is set meanwhile moves them together."""

    __slots__ = ("_offset_ns",)

    def __init__(self, clock: Clock, wall: WallClock = time.time_ns) -> None:
        self._offset_ns = wall() - int(clock() * 1e9)

    def ns(self, stamp_s: float) -> int:
        """Nanoseconds since 1970."""
        return int(stamp_s * 1e9) + self._offset_ns
