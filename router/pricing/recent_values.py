"""Measurements that are believed for a while."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence

BELIEVED_S = 60.0
MIN_VALUES = 3
MAX_VALUES = 32


class RecentValues:
    """The last MAX_VALUES measurements, each believed for BELIEVED_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: deque[tuple[float, float, float]] = deque(maxlen=MAX_VALUES)
        """(when, value, weight)"""
        self.told: Sequence[float] = ()
        """Values that others have measured, and believe now."""

    def add(self, value: float, weight: float = 1.0) -> None:
        """One measurement."""
        self._values.append((self._clock(), value, weight))

    def recent(self) -> list[tuple[float, float]]:
        """(value, weight) of those that are still believed."""
        oldest = self._clock() - BELIEVED_S
        return [(value, weight) for at_s, value, weight in self._values if at_s >= oldest]

    def own(self) -> list[float]:
        """Those that are still believed, without their weights."""
        return [value for value, _ in self.recent()]

    def median(self) -> float | None:
        """Of these and of what was told; None while there are fewer than MIN_VALUES."""
        values = [*self.own(), *self.told]
        return statistics.median(values) if len(values) >= MIN_VALUES else None

    def ratio(self) -> float | None:
        """All values by all weights, so that large ones count most; None without any."""
        recent = self.recent()
        weights = sum(weight for _, weight in recent)
        return sum(value for value, _ in recent) / weights if weights else None
