"""How long something lasts that gets less, by how fast it did lately."""

from __future__ import annotations

import math

from cluster.deadline import Clock

MEMORY_S = 30.0
"""What happened longer ago hardly counts."""
_SHORTEST_S = 0.5
"""Two looks that are closer make no rate."""
_LEAST_LEFT_S = 0.1


class Runway:
    """Of one stock. Who looks more often learns no more: rates are by the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[float, float] | None = None
        self._rate = 0.0
        """How much goes in a second, moving average; below 0 where it grows."""

    def left_s(self, stock: float) -> float:
        """Until nothing is left of `stock`, in seconds: infinite where it does not get less."""
        now_s = self._clock()
        if self._seen is None:
            self._seen = now_s, stock
        then_s, before = self._seen
        if (gap_s := now_s - then_s) >= _SHORTEST_S:
            weight = 1 - math.exp(-gap_s / MEMORY_S)
            self._rate += weight * ((before - stock) / gap_s - self._rate)
            self._seen = now_s, stock
        return max(_LEAST_LEFT_S, stock / self._rate) if self._rate > 0 else math.inf
