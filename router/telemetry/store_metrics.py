"""Metrics of the store that several routers share; only where one is named."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from router.store.shared_store import SharedStore


def watch_store(store: SharedStore, registry: CollectorRegistry) -> None:
    """Called once."""
    Gauge(
        "splitserve_router_store_up",
        "1 while the store that routers share answers this one, else 0",
        registry=registry,
    ).set_function(lambda: store.is_there)
