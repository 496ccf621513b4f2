"""A histogram for what is observed with every token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class QuickHistogram(Collector):
    """From the event loop only, and so without the locks of the library's own: 0.3 us an
    observation in place of 2.5."""

    def __init__(
        self, name: str, help: str, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """`buckets`: upper bounds, growing; what is above the last is counted as well."""
        self._name = name
        self._help = help
        self._bounds = tuple(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, amount: float) -> None:
        """One more."""
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See Collector."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        told, so_far = list[tuple[str, float]](), 0
        for name, count in zip(names, self._counts, strict=True):
            so_far += count
            told.append((name, so_far))
        family = HistogramMetricFamily(self._name, self._help)
        family.add_metric([], told, self._sum)
        yield family
