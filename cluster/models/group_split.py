"""How a group shares a model, by the options of its ranks: the rules of rows and of attention."""

from __future__ import annotations

from typing import Protocol

from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, RowSharing

_SHARINGS = {"auto": RowSharing.ALL, "gather": RowSharing.ALL, "all-to-all": RowSharing.SPLIT}
"""By the option `expert_exchange`. "auto" is "gather": on two ranks of one host decode steps take
up to twice as long by all-to-all, and prompts as long by either, within the spread of a busy
machine (`benchmarks/bench_experts.py`)."""


class SharingOptions(Protocol):
    """Of a group, as EngineOptions has them."""

    @property
    def tensor_parallel_size(self) -> int: ...
    @property
    def expert_parallel_size(self) -> int | None: ...
    @property
    def expert_exchange(self) -> str: ...
    @property
    def data_parallel_attention(self) -> bool: ...


def rank_split(options: SharingOptions, config: DecoderConfig, rank: Rank) -> ModelSplit:
    """What a rank of that group holds, before the checkpoint's groups have a say. Raises as
    `sharing_of`, and as ModelSplit."""
    return ModelSplit(
        config=config,
        rank=rank,
        expert_parallel_size=options.expert_parallel_size,
        row_sharing=sharing_of(options, config),
    )


def sharing_of(options: SharingOptions, config: DecoderConfig) -> RowSharing:
    """What `expert_exchange` and `data_parallel_attention` mean for this model and group: all that
    is said of them follows from this. Raises ConfigError for what cannot be had."""
    asked = options.expert_exchange
    if asked not in _SHARINGS:
        raise ConfigError(
            f"expert_exchange is {asked!r}; choose auto, gather or all-to-all",
            param="expert_exchange",
        )
    if options.data_parallel_attention:
        _check_own_rows(options, config)
        return RowSharing.OWN
    if options.tensor_parallel_size == 1:
        return RowSharing.ALL
    if _SHARINGS[asked].exchanges_rows and config.mixture is None:
        raise ConfigError(
            f"expert_exchange is {asked}, and the model has no experts; leave it at auto",
            param="expert_exchange",
        )
    return _SHARINGS[asked]


def no_sequences_of_its_own() -> ConfigError:
    """For one rank that is to have data-parallel attention."""
    return ConfigError(
        "data_parallel_attention gives each rank of a group sequences of its own, and this is "
        "one rank; use --tensor-parallel-size 2 or more",
        param="data_parallel_attention",
    )


def _check_own_rows(options: SharingOptions, config: DecoderConfig) -> None:
    if config.mixture is None:
        raise ConfigError(
            "data_parallel_attention is for models with routed experts, which the ranks then "
            "share; this one has none: leave it off",
            param="data_parallel_attention",
        )
    if options.tensor_parallel_size < 2:
        raise no_sequences_of_its_own()
    if options.expert_exchange == "gather":
        raise ConfigError(
            "expert_exchange is gather, for which every rank needs all rows, and with "
            "data_parallel_attention each has those of its own sequences; use all-to-all, or auto",
            param="expert_exchange",
        )
