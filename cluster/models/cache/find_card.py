"""The model that a process of a fleet is told to serve."""

from __future__ import annotations

from cluster.common_options import ModelOptions
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.process.startup import report_progress


def find_card(options: ModelOptions) -> ModelCard:
    """Blocking: may download. The supervisor sees how far it is. Raises a ModelError."""
    return ModelStore().resolve(options.model, _report)


def find_heads(source: str) -> HeadsCard | None:
    """As `find_card`, of a head beside a model; None: the source is something else."""
    return ModelStore().resolve_heads(source, _report)


def find_text_card(options: ModelOptions) -> ModelCard:
    """As `find_card`, for a process that runs no weights: a hub's are not fetched for it."""
    return ModelStore().resolve_text(options.model, _report)


def _report(phase: str, done_bytes: int, total_bytes: int | None) -> None:
    report_progress(phase, done_bytes / total_bytes if total_bytes else None)
