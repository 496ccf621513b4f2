"""Metrics of the routers that share a fleet; only where a store is named."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


class CircleMetrics:
    """Of one router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def watch_routers(
        self, num_alive: Callable[[], int], num_disagreeing: Callable[[], int]
    ) -> None:
        """Who is there, and who believes something else."""
        self._gauge("alive", "Routers that share this one's store, with this one", num_alive)
        self._gauge(
            "disagreements",
            "Caches of which another router believes something else, at the same point of events",
            num_disagreeing,
        )

    def watch_digests(self, index: Callable[[], int], load: Callable[[], int]) -> None:
        """Equal in routers that believe the same."""
        self._gauge("index_digest", "All that workers are believed to have cached", index)
        self._gauge("load_digest", "All requests that any router has given any worker", load)

    def _gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        Gauge(f"splitserve_router_{name}", help, registry=self._registry).set_function(value)
