"""What the options of a group mean for a model."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig
from cluster.models.group_split import rank_split, sharing_of
from cluster.sharding import Rank, RowSharing
from tests.cluster.models.configs import DEEPSEEK_V3, SMOLLM2


def shared(config: DecoderConfig, num_ranks: int, **options: Any) -> RowSharing:
    return sharing_of(EngineOptions(tensor_parallel_size=num_ranks, **options), config)


@pytest.mark.parametrize("asked", ["auto", "gather"])
def test_every_rank_has_all_rows_where_nothing_else_was_asked(asked: str) -> None:
    assert shared(DEEPSEEK_V3, 8, expert_exchange=asked) is RowSharing.ALL
    assert shared(SMOLLM2, 2, expert_exchange=asked) is RowSharing.ALL


def test_rows_are_exchanged_where_that_was_asked_and_there_is_another_rank() -> None:
    assert shared(DEEPSEEK_V3, 2, expert_exchange="all-to-all") is RowSharing.SPLIT
    assert shared(DEEPSEEK_V3, 1, expert_exchange="all-to-all") is RowSharing.ALL


def test_a_model_without_experts_has_nothing_to_exchange() -> None:
    with pytest.raises(ConfigError, match="the model has no experts") as raised:
        shared(SMOLLM2, 2, expert_exchange="all-to-all")
    assert raised.value.param == "expert_exchange"


def test_one_rank_exchanges_nothing_with_or_without_experts() -> None:
    assert shared(SMOLLM2, 1, expert_exchange="all-to-all") is RowSharing.ALL


@pytest.mark.parametrize("asked", ["auto", "all-to-all"])
def test_with_data_parallel_attention_ranks_have_rows_of_their_own(asked: str) -> None:
    options = {"expert_exchange": asked, "data_parallel_attention": True}
    assert shared(DEEPSEEK_V3, 2, **options) is RowSharing.OWN


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
        shared(config, num_ranks, expert_exchange=asked, data_parallel_attention=True)
    assert raised.value.param == param


def test_an_exchange_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose auto, gather or all-to-all"):
        shared(DEEPSEEK_V3, 2, expert_exchange="deepep")


def test_a_rank_s_part_follows_from_the_options() -> None:
    options = EngineOptions(
        tensor_parallel_size=4, expert_parallel_size=2, data_parallel_attention=True
    )
    split = rank_split(options, DEEPSEEK_V3, Rank(3, 4))
    assert (split.rank, split.expert_groups) == (Rank(3, 4), 2)
    assert split.row_sharing is RowSharing.OWN
