"""How long somebody has given no sign of life, told from how late we ourselves are.

Time is counted in ticks of our own. One that comes late counts as two: what is beyond that we have
slept, been stopped or been busy ourselves, and cannot say what the other did. Time in which the
other could not speak does not count either, up to EXCUSES times the limit, or what is said instead.
"""

from __future__ import annotations

import time

from cluster.deadline import Clock
from cluster.process.own_lateness import SeenTime

TICKS_PER_LIMIT = 8
LONGEST_INTERVAL_S = 0.5
EXCUSES = 6.0
"""A machine that swaps comes back within a minute, or nothing that runs on it is of use."""


class Silence:
    """One watched party. Call `tick` every `interval_s`."""

    def __init__(
        self,
        limit_s: float,
        *,
        clock: Clock = time.monotonic,
        longest_excuse_s: float | None = None,
    ) -> None:
        self.limit_s = limit_s
        self._longest_excuse_s = longest_excuse_s
        self.interval_s = min(limit_s / TICKS_PER_LIMIT, LONGEST_INTERVAL_S)
        self._time = SeenTime(clock, 2 * self.interval_s)
        self._silent_s = self._excused_s = 0.0

    def heard(self) -> None:
        """A sign of life: counting begins anew."""
        self._silent_s = self._excused_s = 0.0

    @property
    def _most_excused_s(self) -> float:
        return EXCUSES * self.limit_s if self._longest_excuse_s is None else self._longest_excuse_s

    def tick(self, *, is_excused: bool = False) -> bool:
        """True when the silence has been longer than the limit. `is_excused`: since the last tick
        the other could not speak, as is known from elsewhere."""
        passed_s = self._time.since_last_look()
        if is_excused and self._excused_s < self._most_excused_s:
            self._excused_s += passed_s
        else:
            self._silent_s += passed_s
        return self._silent_s > self.limit_s
