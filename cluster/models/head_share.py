"""Which KV heads of a model lie in one rank's pool."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, ranks_of


@dataclass(frozen=True, slots=True)
class HeadShare:
    """A run of heads, by their numbers in the model. Of a latent every rank has head 0 of 1."""

    rank: int
    heads: range
    num_heads: int
    """Of the model."""


def head_shares(
    config: DecoderConfig, world_size: int, *, data_parallel_attention: bool = False
) -> list[HeadShare]:
    """Of a group's ranks, in order; all heads of its own blocks at each with data-parallel
    attention."""
    if data_parallel_attention:
        num_heads = config.kv_shape.num_kv_heads
        return [HeadShare(rank, range(num_heads), num_heads) for rank in range(world_size)]
    return [_share(config, rank) for rank in ranks_of(world_size)]


def _share(config: DecoderConfig, rank: Rank) -> HeadShare:
    heads = ModelSplit(config=config, rank=rank).pool_heads
    return HeadShare(rank.index, heads, config.kv_shape.num_kv_heads)
