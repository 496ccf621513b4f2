"""How often a place comes free while requests wait."""

from __future__ import annotations

from cluster.deadline import Clock

_STEP = 0.05
"""Weight of the newest gap in the moving average: some twenty places count."""


class Pace:
    """Of one line. Gaps in which nobody waited say nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s: float | None = None
        self._gap_s: float | None = None

    @property
    def gap_s(self) -> float | None:
        """Between two places; None before any was measured."""
        return self._gap_s

    def waits(self) -> None:
        """Somebody begins to wait, where nobody did."""
        self._last_s = self._clock()

    def granted(self) -> None:
        """Somebody who waited has a place."""
        now_s = self._clock()
        if self._last_s is not None:
            gap_s = now_s - self._last_s
            known_s = gap_s if self._gap_s is None else self._gap_s
            self._gap_s = known_s + _STEP * (gap_s - known_s)
        self._last_s = now_s
