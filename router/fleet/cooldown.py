"""A worker whose work fails is left alone for a while, never for good.

trusted --failed--> resting for 0.5 s, 1 s, 2 s ... 30 s --> half open: one request at a time
   ^                    ^                                       |         |
   |                    '----------------- failed --------------'         |
   '--------------------- succeeded, or ended well often enough ----------'
"""

from __future__ import annotations

from enum import StrEnum

from cluster.deadline import Clock

FIRST_REST_S = 0.5
LONGEST_REST_S = 30.0


class Trust(StrEnum):
    """Whether a worker gets work, by how its work went: a circuit breaker's states."""

    TRUSTED = "trusted"
    RESTING = "resting"
    HALF_OPEN = "half_open"


class Cooldown:
    """Of one process; a restarted worker has a new one. `clock` gives monotonic seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._num_failures = 0
        self._until_s: float | None = None
        self._is_probed = False

    @property
    def trust(self) -> Trust:
        """As it is now: a rest ends by itself."""
        if self.is_trusted:
            return Trust.TRUSTED
        return Trust.RESTING if self.is_resting else Trust.HALF_OPEN

    @property
    def is_trusted(self) -> bool:
        """True when it has not failed since it last succeeded."""
        return not self._num_failures

    @property
    def is_resting(self) -> bool:
        """True while no new work should go there."""
        return self._until_s is not None and self._clock() < self._until_s

    @property
    def admits(self) -> bool:
        """True when a request may go there now: trusted, or half open and not being tried."""
        return not self.is_resting and not self._is_probed

    def sent(self) -> bool:
        """A request goes there. True when it is the one that tries whether the worker is well:
        whoever sent it calls `given_back` when it is over, whatever came of it."""
        if not self._num_failures or not self.admits:
            return False
        self._is_probed = True
        return True

    def given_back(self) -> None:
        """The request that tried is over; unless it was told otherwise, the next one tries."""
        self._is_probed = False

    def failed(self) -> float | None:
        """Begins a rest and returns its length; None while resting: what was sent before the rest
        may fail by the same cause, and counts as one failure."""
        if self.is_resting:
            return None
        rest_s = min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(self._num_failures, 30))
        self._num_failures += 1
        self._until_s = self._clock() + rest_s
        return rest_s

    def ended_well(self) -> None:
        """Something ended well that did not need all of the worker: takes one failure back, so
        that whoever fails at the rest of its work stays half open."""
        if self._num_failures > 1:
            self._num_failures -= 1
        else:
            self.succeeded()

    def succeeded(self) -> None:
        """It works: the failures before are forgotten."""
        self._num_failures, self._until_s = 0, None
        self._is_probed = False
