"""What is plugged into the ranks of an engine beside its extension: their part of its work.

What they say to each other goes by ranks/line.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cluster.block_homes import BlockHomes
from cluster.models.head_share import HeadShare
from cluster.sharding import Rank
from engine.contract.spec import EngineSpec
from ranks.line import Gather, RankExtension


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParts:
    """What a rank's extension may touch. The tensor lives as long as the process."""

    spec: EngineSpec
    rank: Rank
    kv: torch.Tensor
    """[blocks of one home, num_layers, num_planes, own KV heads, block_size, row_width],
    contiguous."""
    shares: Sequence[HeadShare]
    """Of the model's KV heads, of all ranks in order."""
    gather: Gather
    """Called while a word is handled, by all ranks."""
    num_homes: int
    """Ranks that each back blocks of their own; 1: all back all, each by its heads."""

    @property
    def homes(self) -> BlockHomes:
        """Of all block ids that the group's conductor knows."""
        return BlockHomes(self.num_homes, len(self.kv))

    @property
    def agent_name(self) -> str:
        """For this rank's transfers: no process had it before."""
        return f"{self.spec.incarnation}-{self.rank.index}"


RankExtensionFactory = Callable[[RankParts], RankExtension]
