"""How often a place comes free while requests wait."""

from __future__ import annotations

from cluster.deadline import Clock

_NUM_GAPS = 20
"""That count, and more where more places are there: they may come free together, as when answers
that began together end together, and then none for long."""
MAX_FIRST_GAP_S = 5.0
"""As much of the first gap counts: one bad moment is no pace."""
MEMORY_S = 60.0
"""What was measured longer ago says nothing."""


class Pace:
    """Of one line. Gaps in which nobody waited are no measure, but a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = clock()
        self._measured_s = self._last_s
        self._gap_s = 0.0
        self._num_gaps = 0

    @property
    def gap_s(self) -> float | None:
        """Between two places; None before any was measured, and when the last was long ago."""
        if self._clock() - self._measured_s > MEMORY_S:
            self._num_gaps = 0
        return self._gap_s if self._num_gaps else None

    def waits(self) -> None:
        """Somebody begins to wait, where nobody did."""
        self._last_s = self._clock()

    def granted(self, num_places: int = 0) -> None:
        """Somebody who waited has a place, one of so many."""
        gap_s = self._next_gap_s()
        if self.gap_s is None:
            gap_s = min(gap_s, MAX_FIRST_GAP_S)
        self._measured_s = self._last_s
        self._learn(gap_s, num_places)

    def granted_at_once(self, num_places: int = 0) -> None:
        """Somebody has a place who did not wait: they come at least as often."""
        gap_s = self._next_gap_s()
        if (known_s := self.gap_s) is not None:
            self._learn(min(gap_s, known_s), num_places)

    def _next_gap_s(self) -> float:
        last_s, self._last_s = self._last_s, self._clock()
        return self._last_s - last_s

    def _learn(self, gap_s: float, num_places: int) -> None:
        self._num_gaps += 1
        weight = 1.0 / min(self._num_gaps, max(_NUM_GAPS, num_places))
        self._gap_s += weight * (gap_s - self._gap_s)
