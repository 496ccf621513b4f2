"""A worker whose handoffs fail is left alone for a while, never for good.

trusted --failed--> resting for 0.5 s, 1 s, 2 s ... 30 s --> trusted again: the next failure
   ^                                                         rests it twice as long
   '------------------- succeeded: forgotten ----------------'
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_REST_S = 0.5
LONGEST_REST_S = 30.0


class Cooldown:
    """Of one process; a restarted worker has a new one. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._num_failures = 0
        self._until_s: float | None = None

    @property
    def is_resting(self) -> bool:
        """True while no new work should go there."""
        return self._until_s is not None and self._clock() < self._until_s

    def failed(self) -> float | None:
        """Begins a rest and returns its length; None while resting: what was sent before the rest
        may fail by the same cause, and counts as one failure."""
        if self.is_resting:
            return None
        rest_s = min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(self._num_failures, 30))
        self._num_failures += 1
        self._until_s = self._clock() + rest_s
        return rest_s

    def succeeded(self) -> None:
        """It works: the failures before are forgotten."""
        self._num_failures, self._until_s = 0, None
