"""Histograms for what is observed with every token, or several times with every request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Buckets:
    """The observations of one series. From the event loop only, and so without the locks of the
    library's own: 0.3 us an observation in place of 2.5."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper ones, growing; what is above the last is counted as well."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper ones, growing."""
        return self._bounds

    def counts(self) -> tuple[int, ...]:
        """Observations so far, one for each bound, and above the last."""
        return tuple(self._counts)

    def observe(self, amount: float) -> None:
        """One more."""
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def tell(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Adds the series to its family."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        told, so_far = list[tuple[str, float]](), 0
        for name, count in zip(names, self._counts, strict=True):
            so_far += count
            told.append((name, so_far))
        family.add_metric(list(labels), told, self._sum)


class QuickHistogram(Buckets, Collector):
    """One series."""

    def __init__(
        self, name: str, help: str, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        """`buckets`: as the bounds of Buckets."""
        super().__init__(buckets)
        self._name = name
        self._help = help
        registry.register(self)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See Collector."""
        family = HistogramMetricFamily(self._name, self._help)
        self.tell(family)
        yield family


class QuickHistograms(Collector):
    """A series for each value of one label, all of which are known beforehand."""

    def __init__(
        self,
        name: str,
        help: str,
        buckets: Sequence[float],
        registry: CollectorRegistry,
        *,
        label: str,
        values: Iterable[str],
    ) -> None:
        self._name = name
        self._help = help
        self._label = label
        self.of: Mapping[str, Buckets] = {value: Buckets(buckets) for value in values}
        registry.register(self)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """See Collector."""
        family = HistogramMetricFamily(self._name, self._help, labels=[self._label])
        for value, series in self.of.items():
            series.tell(family, [value])
        yield family
