"""How rows reach the routed experts of other ranks. No torch."""

from __future__ import annotations

import enum

from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig
from engine.contract.spec import EngineSpec

AUTO = "auto"


class ExpertExchange(enum.StrEnum):
    """What "auto" has become, or what was asked for."""

    GATHER = "gather"
    """Every rank has all rows, runs those of its own experts, and the ranks sum what comes out."""
    ALL_TO_ALL = "all-to-all"
    """Every rank has a run of the rows, which go to the ranks of their experts and come back."""


def rows_are_exchanged(spec: EngineSpec) -> bool:
    """Whether the ranks of this replica split rows. Raises as resolve_exchange."""
    options = spec.options
    exchange = resolve_exchange(
        options.expert_exchange, spec.card.config, options.tensor_parallel_size
    )
    return exchange is ExpertExchange.ALL_TO_ALL


def resolve_exchange(asked: str, config: DecoderConfig, num_ranks: int) -> ExpertExchange:
    """What the option `expert_exchange` means for a group.

    "auto" is "gather": on two ranks of one host decode steps take up to twice as long by
    all-to-all, and prompts as long by either, within the spread of a busy machine
    (`benchmarks/bench_experts.py`). Raises ConfigError for a model without experts.
    """
    choices = [exchange.value for exchange in ExpertExchange]
    if asked not in (AUTO, *choices):
        raise ConfigError(
            f"expert_exchange is {asked!r}; choose auto, {' or '.join(choices)}",
            param="expert_exchange",
        )
    if asked != ExpertExchange.ALL_TO_ALL:
        return ExpertExchange.GATHER
    if config.mixture is None:
        raise ConfigError(
            "expert_exchange is all-to-all, and the model has no experts; leave it at auto",
            param="expert_exchange",
        )
    return ExpertExchange.ALL_TO_ALL if num_ranks > 1 else ExpertExchange.GATHER
