"""A rank's place in the group that shares a model's matrices."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.models.model_split import ModelSplit
from kernels.tape.collective import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """What it holds, and its way to the others."""

    split: ModelSplit
    """As `fitted_split` gave it; pool and memory plan go by the same."""
    collective: Collective | None = None
    """Of as many ranks as the split; None: there are no others."""
    logits_at: int | None = None
    """The one rank that wants logits; None: all do."""
