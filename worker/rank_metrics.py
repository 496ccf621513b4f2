"""How the ranks of an engine keep pace, and what room each has, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from cluster.rank_facts import RankWait
from cluster.rank_pace import skew_s


class RankMetrics:
    """Of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waited = Counter(
            "splitserve_worker_rank_wait_seconds",
            "Time that a rank of the engine has waited for the others, by rank.",
            ["rank"],
            registry=registry,
        )
        self._called = Counter(
            "splitserve_worker_rank_collective_seconds",
            "Time that a rank of the engine has spent in collectives, waits included, by rank.",
            ["rank"],
            registry=registry,
        )
        self._skew = Gauge(
            "splitserve_worker_rank_skew_seconds",
            "How much longer the fastest rank waited in a step than the slowest, at last.",
            registry=registry,
        )
        self._blocks_left = Gauge(
            "splitserve_worker_rank_kv_blocks_left",
            "Free and cached KV blocks of a rank, by rank, where ranks share the blocks.",
            ["rank"],
            registry=registry,
        )
        self._latest: tuple[RankWait, ...] = ()

    def blocks_left(self, numbers: Sequence[int]) -> None:
        """Of each rank; none where they share heads."""
        for rank, number in enumerate(numbers):
            self._blocks_left.labels(str(rank)).set(number)

    def take(self, waits: Sequence[RankWait]) -> None:
        """What the engine says of all its ranks."""
        before = {wait.rank: wait for wait in self._latest}
        for wait in waits:
            rank, early = str(wait.rank), before.get(wait.rank)
            waited_s = wait.waited_s - (early.waited_s if early else 0.0)
            called_s = wait.called_s - (early.called_s if early else 0.0)
            self._waited.labels(rank).inc(max(0.0, waited_s))
            self._called.labels(rank).inc(max(0.0, called_s))
        self._skew.set(skew_s(self._latest, waits))
        self._latest = tuple(waits)
