"""`splitserve models`: what is in the cache, and how it gets there."""

from __future__ import annotations

import dataclasses
from typing import Any

from cli.json_output import print_json
from cli.progress_view import ProgressView
from cli.sizes import size_in_words
from cli.table import Table
from cluster.models.card import ModelCard
from cluster.models.store import ModelStore


def list_models(output: str) -> None:
    """Aliases, then what was fetched from the hub."""
    entries = ModelStore().list_models()
    if output == "json":
        print_json([dataclasses.asdict(entry) for entry in entries])
        return
    table = Table("MODEL", "SIZE", "WHERE")
    for entry in entries:
        where = str(entry.cached_path or "not fetched")
        table.add(entry.source, size_in_words(entry.num_bytes), where)
    table.print()


def pull_model(model: str) -> None:
    """Fetches it, then says where it is."""
    with ProgressView() as progress:
        card = ModelStore().pull(model, progress.bytes_of(model))
    print(card.metadata_path)


def show_model(model: str, output: str) -> None:
    """The card."""
    facts = _facts(ModelStore().show(model))
    if output == "json":
        print_json(facts)
        return
    table = Table("FACT", "VALUE")
    for name, value in facts.items():
        words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        table.add(name, words)
    table.print()


def _facts(card: ModelCard) -> dict[str, Any]:
    facts = dataclasses.asdict(card)
    return {**{k: v for k, v in facts.items() if k != "config"}, **facts["config"]}
