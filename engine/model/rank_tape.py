"""The tape that a rank's forward is recorded on, with the collectives that its group has."""

from __future__ import annotations

import torch

from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, RowSharing
from kernels.tape.collective import Collective, ExpertCollective
from kernels.tape.tape import Tape


def rank_tape(
    dtype: torch.dtype,
    split: ModelSplit,
    collective: Collective | None,
    *,
    has_adapters: bool = False,
) -> Tape:
    """Raises ValueError for a collective that cannot exchange rows, where they are exchanged."""
    if collective is None or collective.world_size == 1 or not split.row_sharing.exchanges_rows:
        return Tape(dtype, collective, has_adapters=has_adapters)
    if not isinstance(collective, ExpertCollective):
        raise ValueError(f"{type(collective).__name__} exchanges no rows between ranks")
    summed = None if split.row_sharing is RowSharing.OWN else collective
    return Tape(dtype, summed, exchange=collective, has_adapters=has_adapters)


def check_ranks(rank: Rank, collective: Collective | None) -> None:
    """A rank's parts are worth nothing without the others'."""
    tied = 1 if collective is None else collective.world_size
    if not rank.is_alone and tied != rank.world_size:
        raise ValueError(f"rank {rank.index} of {rank.world_size} in a collective of {tied}")
