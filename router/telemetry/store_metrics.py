"""Metrics of the store that several routers share; only where one is named."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from router.store.shared_store import SharedStore
from router.store.topics import StoreTopic


def watch_store(store: SharedStore, registry: CollectorRegistry) -> None:
    """Called once."""
    Gauge(
        "splitserve_router_store_up",
        "1 while the store that routers share answers this one, else 0",
        registry=registry,
    ).set_function(lambda: store.is_there)
    refused = Counter(
        "splitserve_router_store_refusals",
        "Calls that the store refused, or a part of them, by what they were about",
        ["topic"],
        registry=registry,
    )
    by_topic = {topic: refused.labels(topic) for topic in StoreTopic}
    store.refusals.watch(lambda topic: by_topic[topic].inc())
