"""A worker's adapters, from its options to its place in the fleet."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from cluster.config import WorkerOptions
from cluster.models.card import ModelCard
from cluster.process.background import Background
from worker.adapters.adapter_metrics import AdapterMetrics
from worker.adapters.shelf import AdapterShelf
from worker.engine.host import EngineHost
from worker.own_place import OwnPlace


async def open_shelf(
    options: WorkerOptions,
    card: ModelCard,
    engine: EngineHost,
    place: OwnPlace,
    background: Background,
    registry: CollectorRegistry,
) -> AdapterShelf | None:
    """What lies in the folder is offered when this returns, and watched from then on. None: no
    folder was named. Raises ConfigError for one that cannot be read."""
    if (folder := options.engine.adapters) is None:
        return None
    shelf = AdapterShelf(
        Path(folder).expanduser().absolute(),
        card.config,
        engine.send,
        on_change=place.beat_soon,
        background=background,
        clock=place.clock,
        sleep=place.sleep,
    )
    engine.observe(shelf.heard)
    await shelf.take_all()
    place.adapters = lambda: shelf.offered.told
    registry.register(AdapterMetrics(shelf.numbers))
    background.keep("adapters", shelf.follow)
    return shelf
