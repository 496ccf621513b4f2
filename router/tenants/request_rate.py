"""How many requests a key may make: GCRA, one number of state.

    allowed at:   |----interval----|----interval----|        one after the other, for ever
    a burst:      as many at once as the tolerance has intervals; then one each interval

`_due_s` is when all that was let in would have been due, had it come at an even pace.
"""

from __future__ import annotations

from cluster.deadline import Clock
from cluster.errors import RateLimited

BURST_S = 10.0
"""What was not asked for in these last seconds may come at once."""
LEAST_BURST = 4
"""Requests that may: with fewer, who asks now and then has less than its rate."""


class RequestRate:
    """Of one key."""

    def __init__(self, per_minute: float, clock: Clock) -> None:
        """`per_minute`: above 0."""
        self.per_minute = per_minute
        self._interval_s = 60.0 / per_minute
        self._tolerance_s = max(BURST_S - self._interval_s, (LEAST_BURST - 1) * self._interval_s)
        self._clock = clock
        self._due_s = clock()

    def take(self) -> None:
        """Lets one in. Raises RateLimited with the exact wait."""
        now_s = self._clock()
        due_s = max(self._due_s, now_s)
        wait_s = due_s - self._tolerance_s - now_s
        if wait_s > 0:
            raise RateLimited(
                f"this key may make {self.per_minute:g} requests a minute; "
                f"the next is due in {wait_s:.3g} s",
                retry_after_s=wait_s,
            )
        self._due_s = due_s + self._interval_s
