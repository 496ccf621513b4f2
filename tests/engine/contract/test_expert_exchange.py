"""What the option means for a model and a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.config import EngineOptions
from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig
from engine.contract.expert_exchange import ExpertExchange, check_parts, resolve_exchange
from tests.cluster.models.configs import DEEPSEEK_V3, SMOLLM2


def test_auto_is_gather() -> None:
    assert resolve_exchange("auto", DEEPSEEK_V3, 8) is ExpertExchange.GATHER
    assert resolve_exchange("auto", SMOLLM2, 2) is ExpertExchange.GATHER


def test_rows_are_exchanged_where_that_was_asked_and_there_is_another_rank() -> None:
    assert resolve_exchange("all-to-all", DEEPSEEK_V3, 2) is ExpertExchange.ALL_TO_ALL
    assert resolve_exchange("all-to-all", DEEPSEEK_V3, 1) is ExpertExchange.GATHER


def test_a_model_without_experts_has_nothing_to_exchange() -> None:
    with pytest.raises(ConfigError, match="the model has no experts") as raised:
        resolve_exchange("all-to-all", replace(SMOLLM2, num_layers=2), 2)
    assert raised.value.param == "expert_exchange"


@pytest.mark.parametrize("asked", ["auto", "all-to-all"])
def test_ranks_with_sequences_of_their_own_exchange_rows(asked: str) -> None:
    found = resolve_exchange(asked, DEEPSEEK_V3, 2, data_parallel_attention=True)
    assert found is ExpertExchange.ALL_TO_ALL


@pytest.mark.parametrize(
    ("asked", "config", "num_ranks", "words", "param"),
    [
        ("auto", SMOLLM2, 2, "this one has none: leave it off", "data_parallel_attention"),
        ("auto", DEEPSEEK_V3, 1, "use --tensor-parallel-size 2", "data_parallel_attention"),
        ("gather", DEEPSEEK_V3, 2, "use all-to-all, or auto", "expert_exchange"),
    ],
)
def test_data_parallel_attention_that_cannot_be_had_is_refused(
    asked: str, config: DecoderConfig, num_ranks: int, words: str, param: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        resolve_exchange(asked, config, num_ranks, data_parallel_attention=True)
    assert raised.value.param == param


def test_an_exchange_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose auto, gather or all-to-all"):
        resolve_exchange("deepep", DEEPSEEK_V3, 2)


@pytest.mark.parametrize("param", ["max_num_seqs", "max_batch_tokens"])
def test_a_limit_that_leaves_a_rank_with_nothing_is_refused(param: str) -> None:
    group = EngineOptions(tensor_parallel_size=4, data_parallel_attention=True)
    check_parts(replace(group, **{param: 4}))
    check_parts(replace(EngineOptions(tensor_parallel_size=4), **{param: 1}))
    with pytest.raises(ConfigError, match=f"{param} is 3, and is divided among 4") as raised:
        check_parts(replace(group, **{param: 3}))
    assert raised.value.param == param
