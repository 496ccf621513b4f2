"""Limits on mixtures and latents: a checkpoint's numbers are not trusted until they passed here."""

from __future__ import annotations

import math

from cluster.errors import BadCheckpoint
from cluster.models.card import GroupScore, LatentConfig, MixtureConfig

_MAX_EXPERTS = 1 << 12
_MAX_SIZE = 1 << 19
_MAX_SCALING = 1e4
_MAX_LATENT = {"query_rank": 1 << 16, "kv_rank": 1 << 14}
_MAX_HEAD = 1 << 10


def check_mixture(mixture: MixtureConfig, where: str) -> MixtureConfig:
    """Returns it, or raises BadCheckpoint with the first value that cannot be."""
    _check_range(where, "num_experts", mixture.num_experts, 1, _MAX_EXPERTS)
    _check_range(where, "expert_size", mixture.expert_size, 1, _MAX_SIZE)
    _check_range(where, "shared_size", mixture.shared_size, 0, _MAX_SIZE)
    _check_range(where, "num_groups", mixture.num_groups, 1, mixture.num_experts)
    _check_range(where, "num_chosen_groups", mixture.num_chosen_groups, 1, mixture.num_groups)
    if mixture.num_experts % mixture.num_groups:
        raise BadCheckpoint(
            f"{where}: {mixture.num_experts} experts do not make {mixture.num_groups} equal groups"
        )
    members = mixture.num_experts // mixture.num_groups
    chosen, choice = mixture.num_experts_per_token, members * mixture.num_chosen_groups
    _check_range(where, "num_experts_per_token", chosen, 1, choice)
    if mixture.group_score is GroupScore.BEST_TWO and members < 2:
        raise BadCheckpoint(f"{where}: groups of 1 expert cannot be ranked by their best two")
    if not (math.isfinite(mixture.scaling_factor) and 0 < mixture.scaling_factor <= _MAX_SCALING):
        raise BadCheckpoint(
            f"{where}: scaling_factor is {mixture.scaling_factor}; allowed: above 0 to "
            f"{_MAX_SCALING:g}"
        )
    return mixture


def check_latent(latent: LatentConfig, where: str) -> LatentConfig:
    """Returns it, or raises BadCheckpoint with the first value that cannot be."""
    if latent.query_rank is not None:
        _check_range(where, "query_rank", latent.query_rank, 1, _MAX_LATENT["query_rank"])
    _check_range(where, "kv_rank", latent.kv_rank, 1, _MAX_LATENT["kv_rank"])
    for name in ("nope_dim", "rope_dim", "value_dim"):
        _check_range(where, name, getattr(latent, name), 1, _MAX_HEAD)
    if latent.rope_dim % 2:
        raise BadCheckpoint(f"{where}: rope_dim is {latent.rope_dim}; rotary pairs need it even")
    return latent


def _check_range(where: str, name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadCheckpoint(f"{where}: {name} is {value}; allowed: {low} to {high}")
