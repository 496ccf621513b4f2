"""What the link of each pair of workers carries, as far as it was measured lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType

from cluster.identity import WorkerKey
from router.pricing.recent_values import BELIEVED_S

Link = tuple[WorkerKey, WorkerKey]
"""(prefill worker, decode worker)"""
_DECAY = 0.9
"""Of a transfer's weight with each newer one."""


class LinkRates:
    """Bytes by seconds of each link's recent transfers, so that large ones count most.

    A question costs nothing per link: a fleet of 64 and 64 has 4096 of them.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sums: OrderedDict[Link, tuple[float, float, float]] = OrderedDict()
        """(bytes, seconds, when measured last), the longest ago first."""
        self._rates: dict[Link, float] = {}

    def add(self, link: Link, num_bytes: int, took_s: float) -> None:
        """One request's transfer."""
        known_bytes, known_s, _ = self._sums.pop(link, (0.0, 0.0, 0.0))
        total_bytes, total_s = _DECAY * known_bytes + num_bytes, _DECAY * known_s + took_s
        self._sums[link] = (total_bytes, total_s, self._clock())
        self._rates[link] = total_bytes / total_s

    def rates(self) -> Mapping[Link, float]:
        """Bytes per second. The view goes on to change: it is for the decision at hand."""
        oldest_s = self._clock() - BELIEVED_S
        while self._sums and next(iter(self._sums.values()))[2] < oldest_s:
            link, _ = self._sums.popitem(last=False)
            del self._rates[link]
        return MappingProxyType(self._rates)

    def forget(self, worker: WorkerKey) -> None:
        """The worker is gone."""
        for link in [link for link in self._sums if worker in link]:
            del self._sums[link], self._rates[link]
