"""How long something lasts that gets less, by how fast it did lately."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from cluster.deadline import Clock

Stock = TypeVar("Stock", bound=Hashable)
MEMORY_S = 30.0
"""What happened longer ago hardly counts."""
_SHORTEST_S = 0.5
"""Two looks that are closer make no rate."""
_LEAST_LEFT_S = 0.1


class Runway(Generic[Stock]):
    """Of stocks that are many: one that comes or goes is no use of the others. Who looks more often
    learns no more: rates are by the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[float, Mapping[Stock, float]] | None = None
        self._rate = 0.0
        """How much goes in a second, moving average; below 0 where it grows."""

    def left_s(
        self, stocks: Mapping[Stock, float], others: Mapping[Stock, float] | None = None
    ) -> float:
        """Until nothing is left of `stocks`, in seconds: infinite where they do not get less.
        `others`: that nobody may draw on, and whose use has moved here, or will: what they get back
        is not used up here."""
        now_s, moving = self._clock(), {**(others or {}), **stocks}
        if self._seen is None:
            self._seen = now_s, moving
        then_s, before = self._seen
        if (gap_s := now_s - then_s) >= _SHORTEST_S:
            used = sum(before[each] - moving[each] for each in moving.keys() & before.keys())
            weight = 1 - math.exp(-gap_s / MEMORY_S)
            self._rate += weight * (used / gap_s - self._rate)
            self._seen = now_s, moving
        if self._rate <= 0:
            return math.inf
        return max(_LEAST_LEFT_S, sum(stocks.values()) / self._rate)
