"""A group's memory as `splitserve models show` prints it: ranks that hold the same on one line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from cli.rank_memory import MOST_RANKS, GroupMemory, RankRow
from cli.table import Table
from cluster.terminal_text import size_in_words


def print_group(group: GroupMemory, memory_bytes: int) -> None:
    """To stdout; `memory_bytes` are each device's."""
    size = 1 + max(row.rank for row in group.ranks)
    print(f"\nEach of {size} rank{'s' if size > 1 else ''} holds:")
    _ranks_table(group.ranks).print()
    print(f"\nThe fewest devices of {size_in_words(memory_bytes)} that hold it:")
    _smallest_table(group).print()


def _ranks_table(rows: list[RankRow]) -> Table:
    has_experts = any(row.num_experts for row in rows)
    table = Table(
        *("WEIGHTS", "KV", "RANKS", "WEIGHT MEMORY", "KV PER TOKEN", "QUERY HEADS", "KV HEADS"),
        *(["EXPERTS"] if has_experts else []),
        "LARGEST CONTEXT",
    )
    for ranks, row in _alike(rows):
        table.add(
            *(row.weights, row.kv, ranks),
            *(size_in_words(row.weight_bytes), size_in_words(row.kv_bytes_per_token)),
            *(str(row.num_heads), str(row.num_kv_heads)),
            *([str(row.num_experts)] if has_experts else []),
            _context(row.max_context_tokens),
        )
    return table


def _alike(rows: list[RankRow]) -> Iterator[tuple[str, RankRow]]:
    """Neighbours that differ in nothing but their number, and their numbers."""
    for _, run in itertools.groupby(rows, key=lambda row: replace(row, rank=0)):
        first, *others = run
        last = others[-1] if others else first
        yield (str(first.rank) if last is first else f"{first.rank}-{last.rank}"), first


def _smallest_table(group: GroupMemory) -> Table:
    table = Table("WEIGHTS", "KV", "DEVICES", "LARGEST CONTEXT")
    for found in group.smallest_groups:
        devices = f"more than {MOST_RANKS}" if found.num_ranks is None else str(found.num_ranks)
        table.add(found.weights, found.kv, devices, _context(found.max_context_tokens))
    return table


def _context(tokens: int) -> str:
    return str(tokens) if tokens else "does not fit"
