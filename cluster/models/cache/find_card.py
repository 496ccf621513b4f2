"""The model that a process of a fleet is told to serve."""

from __future__ import annotations

from cluster.common_options import ModelOptions
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.process.startup import report_progress


def find_card(options: ModelOptions) -> ModelCard:
    """Blocking: may download. The supervisor sees how far it is. Raises a ModelError."""

    def report(phase: str, done_bytes: int, total_bytes: int | None) -> None:
        report_progress(phase, done_bytes / total_bytes if total_bytes else None)

    return ModelStore().resolve(options.model, report)
