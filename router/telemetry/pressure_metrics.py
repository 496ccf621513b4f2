"""How near pools are to their budgets, for whoever scales them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class Pressure:
    """Of all workers of one role."""

    role: str
    signal: str
    """What it is about: wait, inter_token, free_blocks."""
    ratio: float
    """1: at its budget."""


class PressureMetrics(Collector):
    """Of one router."""

    def __init__(self, now: Callable[[], Iterable[Pressure]]) -> None:
        self._now = now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See Collector; called with every scrape."""
        family = GaugeMetricFamily(
            "splitserve_pool_pressure_ratio",
            "How near the workers of a role are to being too few, by what shows it; 1: at budget",
            labels=["role", "signal"],
        )
        for each in self._now():
            family.add_metric([each.role, each.signal], each.ratio)
        yield family
