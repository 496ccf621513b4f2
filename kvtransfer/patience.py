"""How long something has made no progress, as far as somebody was looking."""

from __future__ import annotations

from collections.abc import Callable

LONGEST_LOOK_S = 1.0
"""Of the time between two looks this much counts: a reader that was itself held up (stopped, or
starved of its processor) has not waited for anybody meanwhile."""


class Patience:
    """Counts from the last progress. One thread's; `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waited_s = 0.0
        self._looked_at = clock()

    def renew(self) -> None:
        """Something has moved."""
        self._waited_s = 0.0
        self._looked_at = self._clock()

    def look(self) -> float:
        """Seconds without progress; to be called at least once a second while waiting."""
        now = self._clock()
        self._waited_s += min(now - self._looked_at, LONGEST_LOOK_S)
        self._looked_at = now
        return self._waited_s
