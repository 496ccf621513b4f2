"""What is plugged into the ranks of an engine beside its extension: their part of its work.

    conductor   RankLine.tell(body)  --- a WORD, ordered with the steps -->  RankExtension.handle
                RankLine.gather()    <-- with all of them -------------->    RankParts.gather
                RankLine.hear()      <-- a Word report -------------------   RankExtension.poll
                RankLine.greetings   <-- RankReady ----------------------    RankExtension.greeting

The conductor's side is in engine/runner/other_ranks.py. What is said is opaque here. Everything of
a RankExtension is called from its rank's one thread and must return at once; what it raises ends
the rank, and so the group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from cluster.sharding import Rank
from engine.contract.spec import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParts:
    """What a rank's extension may touch. The tensor lives as long as the process."""

    spec: EngineSpec
    rank: Rank
    kv: torch.Tensor
    """[num_blocks, num_layers, num_planes, own KV heads, block_size, row_width], contiguous."""
    kv_heads: range
    """Those of the model that are kept here."""
    gather: Callable[[torch.Tensor, Sequence[int]], torch.Tensor]
    """See RankLine: called while a word is handled, by all ranks."""


class RankExtension(Protocol):
    """Of a rank that is not the conductor."""

    @property
    def busy(self) -> bool:
        """True while something is in flight: the rank polls instead of sleeping."""

    @property
    def greeting(self) -> bytes:
        """For the conductor's extension, with RankReady; asked once."""

    def handle(self, body: bytes) -> None:
        """What the conductor has told all ranks, in order, between the steps around it."""

    def poll(self) -> list[bytes]:
        """For the conductor, once per turn."""

    def close(self) -> None:
        """The process ends. Called once."""


RankExtensionFactory = Callable[[RankParts], RankExtension]
