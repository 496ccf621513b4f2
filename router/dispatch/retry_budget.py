"""How many requests may be sent a second time, of all that a router has.

    of the last ten seconds: 100, or one for five requests that began then or run now, whichever
    is more

Where every worker answers with errors each request would come twice, and the load that made them
fail would double. Who goes on because its worker is gone or stops is not counted: nobody does its
work twice, and that all streams of a lost worker go on is what it is for.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.deadline import Clock

WINDOW_S = 10
RETRIES_PER_S = 10
"""Always allowed."""
REQUESTS_PER_RETRY = 5
"""Envoy's and Finagle's share: 20 % of live requests."""


class RecentCount:
    """How often something happened in this second and the WINDOW_S - 1 before it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = [0] * WINDOW_S
        self._second = int(clock())

    def add(self) -> None:
        """Once more."""
        self._move_on()
        self._counts[self._second % WINDOW_S] += 1

    @property
    def total(self) -> int:
        """Of the window."""
        self._move_on()
        return sum(self._counts)

    def _move_on(self) -> None:
        now = int(self._clock())
        for second in range(max(self._second, now - WINDOW_S) + 1, now + 1):
            self._counts[second % WINDOW_S] = 0
        self._second = now


class RetryBudget:
    """Of one router; all calls from the event loop. `num_running`: requests that it has now."""

    def __init__(self, num_running: Callable[[], int], clock: Clock) -> None:
        self._num_running = num_running
        self._begun = RecentCount(clock)
        self._retried = RecentCount(clock)

    def begun(self) -> None:
        """A request has been admitted."""
        self._begun.add()

    @property
    def has_room(self) -> bool:
        """True when one more may be sent again."""
        return self.used_share < 1.0

    @property
    def used_share(self) -> float:
        """From 0 to 1, and beyond it where there are fewer requests than there were."""
        num_live = max(self._begun.total, self._num_running())
        allowed = max(RETRIES_PER_S * WINDOW_S, num_live // REQUESTS_PER_RETRY)
        return self._retried.total / allowed

    def spend(self) -> None:
        """One is sent again."""
        self._retried.add()
