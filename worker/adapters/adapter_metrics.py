"""The part of a worker's Prometheus page on adapters, where it has a folder of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from worker.adapters.numbers import AdapterNumbers

_EVENTS = ("read", "evicted", "withdrawn", "refused", "unread", "lost")


class AdapterMetrics(Collector):
    """Reads the latest numbers with every scrape, in whatever thread that is."""

    def __init__(self, numbers: Callable[[], AdapterNumbers]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """See Collector."""
        now = self._numbers()
        adapters = GaugeMetricFamily(
            "splitserve_worker_adapters",
            "Adapters: names that are offered, and versions that are resident in the device's "
            "memory.",
            labels=["state"],
        )
        adapters.add_metric(["offered"], now.offered)
        adapters.add_metric(["resident"], now.resident)
        yield adapters
        yield GaugeMetricFamily(
            "splitserve_worker_adapter_bytes",
            "Memory that resident adapters take at the engine's first rank.",
            value=now.resident_bytes,
        )
        yield GaugeMetricFamily(
            "splitserve_worker_adapter_folder_unread_seconds",
            "Since the folder of adapters could not be read; 0: the last look has read it.",
            value=now.folder_unread_s,
        )
        events = CounterMetricFamily(
            "splitserve_worker_adapter_events",
            "What became of adapters: read into memory, evicted from it, withdrawn: offered by no "
            "name any more, refused for their files, unread: tried in vain, to be "
            "tried again, lost: files of one that was offered could not be read again.",
            labels=["event"],
        )
        for event in _EVENTS:
            events.add_metric([event], getattr(now, event))
        yield events
