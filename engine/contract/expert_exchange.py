"""How rows reach the routed experts of other ranks. No torch."""

from __future__ import annotations

import enum

from cluster.config import EngineOptions
from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig
from engine.contract.spec import EngineSpec

AUTO = "auto"


class ExpertExchange(enum.StrEnum):
    """What "auto" has become, or what was asked for."""

    GATHER = "gather"
    """Every rank has all rows, runs those of its own experts, and the ranks sum what comes out."""
    ALL_TO_ALL = "all-to-all"
    """Every rank has some of the rows, which go to the ranks of their experts and come back."""


def rows_are_exchanged(spec: EngineSpec) -> bool:
    """Whether each rank of this replica has other rows, which it sends to the experts of others.
    Raises as resolve_exchange."""
    options = spec.options
    exchange = resolve_exchange(
        options.expert_exchange,
        spec.card.config,
        options.tensor_parallel_size,
        data_parallel_attention=options.data_parallel_attention,
    )
    return exchange is ExpertExchange.ALL_TO_ALL


def resolve_exchange(
    asked: str,
    config: DecoderConfig,
    num_ranks: int,
    *,
    data_parallel_attention: bool = False,
) -> ExpertExchange:
    """What the option `expert_exchange` means for a group.

    "auto" is "gather": on two ranks of one host decode steps take up to twice as long by
    all-to-all, and prompts as long by either, within the spread of a busy machine
    (`benchmarks/bench_experts.py`). Ranks with sequences of their own have no rows of each other:
    there it is "all-to-all". Raises ConfigError for a model without experts, and as
    `check_data_parallel`.
    """
    choices = [exchange.value for exchange in ExpertExchange]
    if asked not in (AUTO, *choices):
        raise ConfigError(
            f"expert_exchange is {asked!r}; choose auto, {' or '.join(choices)}",
            param="expert_exchange",
        )
    if data_parallel_attention:
        check_data_parallel(asked, config, num_ranks)
        asked = ExpertExchange.ALL_TO_ALL
    if asked != ExpertExchange.ALL_TO_ALL:
        return ExpertExchange.GATHER
    if config.mixture is None:
        raise ConfigError(
            "expert_exchange is all-to-all, and the model has no experts; leave it at auto",
            param="expert_exchange",
        )
    return ExpertExchange.ALL_TO_ALL if num_ranks > 1 else ExpertExchange.GATHER


def check_attention(spec: EngineSpec) -> None:
    """Raises ConfigError where this replica has data-parallel attention and cannot have it."""
    options = spec.options
    if options.data_parallel_attention:
        check_data_parallel(options.expert_exchange, spec.card.config, options.tensor_parallel_size)
        check_parts(options)


def check_parts(options: EngineOptions) -> None:
    """Raises ConfigError where a step has less than one sequence, or token, for each home."""
    limits = {"max_num_seqs": options.max_num_seqs, "max_batch_tokens": options.max_batch_tokens}
    for param, limit in limits.items():
        if limit < options.num_homes:
            raise ConfigError(
                f"{param} is {limit}, and is divided among {options.num_homes} ranks with "
                f"sequences of their own; use {options.num_homes} or more",
                param=param,
            )


def check_data_parallel(asked: str, config: DecoderConfig, num_ranks: int) -> None:
    """Raises ConfigError for a group whose ranks cannot have sequences of their own; `asked` is the
    option `expert_exchange`."""
    if config.mixture is None:
        raise ConfigError(
            "data_parallel_attention is for models with routed experts, which the ranks then "
            "share; this one has none: leave it off",
            param="data_parallel_attention",
        )
    if num_ranks < 2:
        raise ConfigError(
            "data_parallel_attention gives each rank of a group sequences of its own, and this is "
            "one rank; use --tensor-parallel-size 2 or more",
            param="data_parallel_attention",
        )
    if asked == ExpertExchange.GATHER:
        raise ConfigError(
            "expert_exchange is gather, for which every rank needs all rows, and with "
            "data_parallel_attention each has those of its own sequences; use all-to-all, or auto",
            param="expert_exchange",
        )
