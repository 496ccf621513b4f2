"""Whether decode steps can be recorded once and replayed: all ranks of a group answer alike."""

from __future__ import annotations

from cluster.engine_options import EngineOptions
from cluster.models.model_split import ModelSplit


def why_not_replayed(options: EngineOptions, split: ModelSplit) -> str | None:
    """None: they can, on a device that replays. A group's are replayed by all ranks or by none:
    this goes by what they share, the options and how the model is split."""
    if not options.cuda_graphs:
        return "--no-cuda-graphs"
    if split.row_sharing.exchanges_rows:
        return "ranks exchange rows: the host has to know how many, in every layer"
    if _moves_experts(options, split):
        return "experts change their ranks: a recorded step would go on with those that were there"
    return None


def _moves_experts(options: EngineOptions, split: ModelSplit) -> bool:
    has_others = split.config.mixture is not None and not split.rank.is_alone
    return has_others and options.expert_rebalance_interval_s is not None
