"""`splitserve models`: what is in the cache, how it gets there, and what it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cli.json_output import print_json
from cli.model_memory import (
    Formats,
    MemoryRow,
    format_choices,
    free_memory,
    memory_rows,
    num_parameters,
)
from cli.progress_view import ProgressView
from cli.rank_memory import GroupOptions, group_memory
from cli.rank_tables import print_group
from cli.table import Table
from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.files.progress import ByteProgress
from cluster.terminal_text import size_in_words


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


def pull_models(models: Sequence[str]) -> None:
    """Fetches one after the other, and says of each where it is."""
    for model in models:
        with ProgressView() as progress:
            path = _pull(model, progress.bytes_of(model))
        print(path)


def _pull(source: str, progress: ByteProgress) -> Path:
    """Of a model, or of a head beside one, which is no model by itself."""
    store = ModelStore()
    try:
        return store.pull(source, progress).metadata_path
    except (UnsupportedModel, BadCheckpoint):
        heads = store.resolve_heads(source, progress)
        if heads is None:
            raise
        return heads.weight_files[0].parent


def show_model(
    model: str,
    formats: Formats,
    memory_bytes: int | None,
    output: str,
    group: GroupOptions | None = None,
) -> None:
    """The card, and what fits into that much memory; default: what this machine has free. With a
    `group`, what each of its ranks would hold, and how few ranks would do."""
    card = ModelStore().show(model)
    memory = free_memory() if memory_bytes is None else memory_bytes
    choices = format_choices(card, formats)
    rows = memory_rows(card, choices, memory)
    ranks = None if group is None else group_memory(card, choices, group, memory)
    if output == "json":
        of_ranks = {} if ranks is None else dataclasses.asdict(ranks)
        memory_facts = {"memory_bytes": memory, "memory": list(map(dataclasses.asdict, rows))}
        print_json({**_facts(card), **memory_facts, **of_ranks})
        return
    table = Table("FACT", "VALUE")
    for name, value in _facts(card).items():
        table.add(name, _in_words(value))
    table.print()
    print(f"\nIn {size_in_words(memory)} of memory:")
    _memory_table(rows).print()
    if ranks is not None:
        print_group(ranks, memory)


def _memory_table(rows: list[MemoryRow]) -> Table:
    batches = [f"SEQS OF {context}" for context in rows[0].batches]
    table = Table("WEIGHTS", "KV", "WEIGHT MEMORY", "KV PER TOKEN", "LARGEST CONTEXT", *batches)
    for row in rows:
        context = str(row.max_context_tokens) if row.max_context_tokens else "does not fit"
        sizes = size_in_words(row.weight_bytes), size_in_words(row.kv_bytes_per_token)
        table.add(row.weights, row.kv, *sizes, context, *map(str, row.batches.values()))
    return table


def _facts(card: ModelCard) -> dict[str, Any]:
    """Flat; what a model does not have is left out."""
    facts: dict[str, Any] = msgspec.to_builtins(card, enc_hook=str)
    flat = {**{k: v for k, v in facts.items() if k != "config"}, **facts["config"]}
    present = {name: value for name, value in flat.items() if value is not None}
    return {"parameters": num_parameters(card), **present}


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(part)}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
