"""A worker's adapters, from its options to its place in the fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from cluster.config import WorkerOptions
from cluster.logs import get_logger
from cluster.models.card import ModelCard
from cluster.process.background import Background, until_one_ends
from cluster.process.startup import report_progress
from worker.adapters.adapter_metrics import AdapterMetrics
from worker.adapters.shelf import AdapterShelf
from worker.engine.host import EngineHost
from worker.own_place import OwnPlace

FIRST_LOOK_S: Final = 10
"""So long a worker that starts waits for its adapters, to have them when it joins. It serves the
base model, and what it has read, without those that take longer."""
_log = get_logger("worker.adapters")


async def open_shelf(
    options: WorkerOptions,
    card: ModelCard,
    engine: EngineHost,
    place: OwnPlace,
    background: Background,
    registry: CollectorRegistry,
) -> AdapterShelf | None:
    """The folder is watched from now on; when this returns, what lies there is offered, as far as
    it could be read within FIRST_LOOK_S. None: no folder was named."""
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
    place.adapters = lambda: shelf.offered.told
    place.unread_adapters = lambda: shelf.unread
    registry.register(AdapterMetrics(shelf.numbers))
    background.keep("adapters", shelf.follow)
    await _first_look(shelf, place)
    return shelf


async def _first_look(shelf: AdapterShelf, place: OwnPlace) -> None:
    for _ in range(FIRST_LOOK_S):
        report_progress("adapters", shelf.num_read / max(1, len(shelf.to_read)))
        if await until_one_ends(shelf.has_looked.wait(), place.sleep(1.0)) == 0:
            return
    _log.warning(
        "adapters are still being read; the worker serves without those until they are",
        num_read=shelf.num_read,
        num_to_read=len(shelf.to_read),
    )
