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
    num_whole_layers: int = 0
    """Of the group's blocks, behind the layers whose heads the ranks share: rank 0 has all heads of
    them, and no other rank any."""


def head_shares(
    config: DecoderConfig, world_size: int, *, num_homes: int, num_whole_layers: int = 0
) -> list[HeadShare]:
    """Of a group's ranks, in order. Where blocks have several homes (cluster/block_homes.py), each
    rank has all heads of its own."""
    ranks, num_heads = ranks_of(world_size), config.kv_shape.num_kv_heads
    return [
        HeadShare(
            rank.index,
            _heads(config, rank if num_homes == 1 else ALONE),
            num_heads,
            num_whole_layers,
        )
        for rank in ranks
    ]


def _heads(config: DecoderConfig, sharer: Rank) -> range:
    return ModelSplit(config=config, rank=sharer).pool_heads
