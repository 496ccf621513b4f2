"""Which KV heads of a model lie in one rank's pool."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from cluster.sharding import ALONE, Rank, ranks_of


@dataclass(frozen=True, slots=True)
class HeadShare:
    """A run of heads, by their numbers in the model. Of a latent every rank has head 0 of 1."""

    rank: int
    heads: range
    num_heads: int
    """Of the model."""


def head_shares(config: DecoderConfig, world_size: int, *, num_homes: int) -> list[HeadShare]:
    """Of a group's ranks, in order. Where blocks have several homes (cluster/block_homes.py), each
    rank has all heads of its own."""
    ranks = ranks_of(world_size)
    return [_share(config, rank, rank if num_homes == 1 else ALONE) for rank in ranks]


def _share(config: DecoderConfig, rank: Rank, sharer: Rank) -> HeadShare:
    heads = ModelSplit(config=config, rank=sharer).pool_heads
    return HeadShare(rank.index, heads, config.kv_shape.num_kv_heads)
