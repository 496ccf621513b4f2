"""Which pairings a fleet is of: more than one while a rolling update is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class PairingCount:
    """Workers of one role and one pairing that take work."""

    digest: str
    role: str
    num_workers: int
    num_without_partner: int
    """Of these: there is none of the other role that they could pair with."""


class PairingMetrics(Collector):
    """Of one router."""

    def __init__(
        self, counts: Callable[[], Iterable[PairingCount]], serves_own: Callable[[], bool]
    ) -> None:
        """`serves_own`: whether new requests go to workers with the weights that the router has
        loaded."""
        self._counts = counts
        self._serves_own = serves_own

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See Collector; called with every scrape."""
        labels = ["pairing", "role"]
        workers = GaugeMetricFamily(
            "splitserve_pairing_workers",
            "Workers that take work, by the digest of what two must share to pair",
            labels=labels,
        )
        alone = GaugeMetricFamily(
            "splitserve_pairing_without_partner",
            "Of these, those that have no worker of the other role to pair with",
            labels=labels,
        )
        for each in self._counts():
            workers.add_metric([each.digest, each.role], each.num_workers)
            alone.add_metric([each.digest, each.role], each.num_without_partner)
        yield workers
        yield alone
        yield GaugeMetricFamily(
            "splitserve_serves_own_model",
            "0 while new requests go to workers of other weights than the router's own, else 1",
            value=float(self._serves_own()),
        )
