"""The ranks' part of `splitserve models show`: what each would hold, and how few would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cli.model_memory import FormatChoice, usable_memory
from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.column_unit import declared_matrices, fitting_split
from cluster.models.footprint import Footprint, footprint
from cluster.models.group_split import no_sequences_of_its_own, rank_split
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, ranks_of

MOST_RANKS = 64
"""As many as a search for the smallest group goes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """As the options of `splitserve serve`."""

    tensor_parallel_size: int
    expert_parallel_size: int | None = None
    expert_exchange: str = "auto"
    data_parallel_attention: bool = False


def group_options(
    tensor_parallel_size: int | None,
    expert_parallel_size: int | None = None,
    expert_exchange: str = "auto",
    *,
    data_parallel_attention: bool = False,
) -> GroupOptions | None:
    """None where no group is asked for. Raises ConfigError for what only ranks can have."""
    if tensor_parallel_size is not None:
        return GroupOptions(
            tensor_parallel_size=tensor_parallel_size,
            expert_parallel_size=expert_parallel_size,
            expert_exchange=expert_exchange,
            data_parallel_attention=data_parallel_attention,
        )
    if data_parallel_attention:
        raise no_sequences_of_its_own()
    if expert_parallel_size is not None:
        raise ConfigError(
            "--expert-parallel-size deals experts out to the ranks of a group; say how many with "
            "--tensor-parallel-size",
            param="expert_parallel_size",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """What one rank would hold, in one choice of formats."""

    weights: str
    kv: str
    rank: int
    weight_bytes: int
    kv_bytes_per_token: int
    workspace_bytes: int
    num_heads: int
    """Of the query."""
    num_kv_heads: int
    """Of a latent, which every rank keeps whole, those that are made of it here."""
    num_experts: int
    """Routed ones, of each layer that has any."""
    max_context_tokens: int
    """Of one sequence, in the memory given; 0: the weights do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestGroup:
    """How few devices of the memory given hold the model in one choice of formats."""

    weights: str
    kv: str
    num_ranks: int | None
    """The fewest that hold one sequence of the model's largest context; where none do, the fewest
    that hold any. None: not even MOST_RANKS."""
    max_context_tokens: int
    """Of one sequence then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemory:
    """What `models show` says of a group."""

    ranks: list[RankRow]
    """Of each choice of formats all ranks, in order."""
    smallest_groups: list[SmallestGroup]
    """One of each choice."""


def group_memory(
    card: ModelCard, choices: Sequence[FormatChoice], group: GroupOptions, memory_bytes: int
) -> GroupMemory:
    """On devices of `memory_bytes` each. Raises ConfigError for sizes that cannot be had."""
    usable = usable_memory(memory_bytes)
    return GroupMemory(
        ranks=[row for choice in choices for row in rank_rows(card, choice, group, usable)],
        smallest_groups=[smallest_group(card, choice, group, usable) for choice in choices],
    )


def rank_rows(
    card: ModelCard, choice: FormatChoice, group: GroupOptions, usable_bytes: int
) -> list[RankRow]:
    """Of all ranks, in order. Raises ConfigError for sizes that cannot be had."""
    splits = _splits(card, choice, group)
    return [_row(card, choice, split, usable_bytes) for split in splits]


def smallest_group(
    card: ModelCard, choice: FormatChoice, group: GroupOptions, usable_bytes: int
) -> SmallestGroup:
    """As `group` of any size, with as many groups of experts as there can be."""
    found, best = None, 0
    for size in range(1, MOST_RANKS + 1):
        tried = replace(group, tensor_parallel_size=size, expert_parallel_size=None)
        context = _context_of_group(card, choice, tried, usable_bytes)
        if context > 0 and (found is None or context == card.config.max_context_tokens):
            found, best = size, context
        if best == card.config.max_context_tokens:
            break
    return SmallestGroup(
        weights=choice.weights_in_words,
        kv=choice.kv_in_words,
        num_ranks=found,
        max_context_tokens=best,
    )


def _context_of_group(
    card: ModelCard, choice: FormatChoice, group: GroupOptions, usable_bytes: int
) -> int:
    """0: it does not fit, or cannot be shared by so many. None of them holds more than the last,
    but for the biases of sums, which are the first one's."""
    try:
        *others, last = _splits(card, choice, group)
        limit = card.config.max_context_tokens
        return min(
            _footprint(card, choice, split).largest_context(usable_bytes, limit)
            for split in (*others[:1], last)
        )
    except ConfigError:
        return 0


def _splits(card: ModelCard, choice: FormatChoice, group: GroupOptions) -> Iterator[ModelSplit]:
    size = group.tensor_parallel_size
    first = rank_split(group, card.config, Rank(0, size))
    fitted = fitting_split(first, choice.weights, declared_matrices(card))
    return (replace(fitted, rank=rank) for rank in ranks_of(size))


def _row(card: ModelCard, choice: FormatChoice, split: ModelSplit, usable_bytes: int) -> RankRow:
    needs = _footprint(card, choice, split)
    return RankRow(
        weights=choice.weights_in_words,
        kv=choice.kv_in_words,
        rank=split.rank.index,
        weight_bytes=needs.weight_bytes,
        kv_bytes_per_token=needs.kv_bytes_per_token,
        workspace_bytes=needs.workspace_bytes,
        num_heads=len(split.heads),
        num_kv_heads=len(split.kv_heads),
        num_experts=len(split.experts),
        max_context_tokens=needs.largest_context(usable_bytes, card.config.max_context_tokens),
    )


def _footprint(card: ModelCard, choice: FormatChoice, split: ModelSplit) -> Footprint:
    return footprint(
        split,
        dtype=choice.dtype,
        weights=choice.weights,
        kv=choice.kv,
        stored_bytes=card.stored_bytes,
    )
