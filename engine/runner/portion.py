"""A process's portion of a replica: which part it loads, and how it agrees with the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from cluster.sharding import ALONE, Rank, RowSharing
from engine.model.rank_place import RankPlace
from kernels.tape.collective import Collective


class LoadedTogether(Protocol):
    """What ranks settle among themselves while they load. Called by all, in one order."""

    def meet(self) -> None:
        """Waits until all have read their weights. Raises RankLost."""

    def least(self, number: int, device: torch.device) -> int:
        """The smallest that any rank brings; `device` is that of its collectives. Raises
        RankLost."""

    def settle(self) -> None:
        """Waits until what all have begun to compute is there, where a device computes it, but not
        for ever. Any number of times, by all alike. Raises RankLost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """One process's."""

    rank: Rank = ALONE
    expert_parallel_size: int | None = None
    """See ModelSplit."""
    row_sharing: RowSharing = RowSharing.ALL
    collective: Collective | None = None
    logits_at: int | None = None
    """See RankPlace."""
    together: LoadedTogether | None = None
    """None: nobody else has to agree."""
    num_beside: int = 1
    """Ranks on this host, this one among them."""
    free_bytes: int | None = None
    """Of the host's memory when none of them had begun to load; None: what is free now."""

    @property
    def num_homes(self) -> int:
        """Ranks that each back blocks of their own; 1: all back all, each by its heads."""
        return self.rank.world_size if self.row_sharing is RowSharing.OWN else 1

    def split_of(self, config: DecoderConfig) -> ModelSplit:
        """What it holds of a model, before the checkpoint's groups have a say."""
        return ModelSplit(
            config=config,
            rank=self.rank,
            expert_parallel_size=self.expert_parallel_size,
            row_sharing=self.row_sharing,
        )

    def place_of(self, split: ModelSplit) -> RankPlace:
        """`split` as the checkpoint allows it."""
        return RankPlace(split=split, collective=self.collective, logits_at=self.logits_at)

    def num_sharing(self, device: torch.device) -> int:
        """Ranks that share the device's memory: on a CPU all of the host, else each has its own."""
        return self.num_beside if device.type == "cpu" else 1

    def await_others(self) -> None:
        """Until they have read their weights, too: whatever is computed next, all compute."""
        if self.together is not None:
            self.together.meet()

    def agreed(self, number: int, device: torch.device) -> int:
        """The least that any rank brings: tokens of a context, since all run the same forwards;
        blocks of the pool, since their ids mean the same at every rank."""
        return number if self.together is None else self.together.least(number, device)

    def settle(self) -> None:
        """See LoadedTogether; who is alone waits for its device itself."""
        if self.together is not None:
            self.together.settle()


WHOLE_REPLICA = Portion()
