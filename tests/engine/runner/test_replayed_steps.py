"""Which groups replay their decode steps: an answer that all ranks give alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.engine_options import EngineOptions
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from cluster.sharding import ALONE, RowSharing, ranks_of
from engine.runner.replayed_steps import why_not_replayed
from tests.engine.model.family_models import random_model, saved_card


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> DecoderConfig:
    folder: Path = tmp_path_factory.mktemp("mixtral")
    return saved_card(random_model("MixtralForCausalLM", num_local_experts=4), folder).config


def reasons(
    config: DecoderConfig, options: EngineOptions, sharing: RowSharing = RowSharing.ALL
) -> set[str]:
    """Of both ranks of a group."""
    splits = [ModelSplit(config=config, rank=r, row_sharing=sharing) for r in ranks_of(2)]
    return {str(why_not_replayed(options, split)) for split in splits}


def test_a_group_that_keeps_its_experts_is_replayed(mixtral: DecoderConfig) -> None:
    assert reasons(mixtral, EngineOptions()) == {"None"}


def test_ranks_that_exchange_rows_are_not(mixtral: DecoderConfig) -> None:
    for sharing in (RowSharing.SPLIT, RowSharing.OWN):
        (why,) = reasons(mixtral, EngineOptions(), sharing)
        assert "the host has to know how many" in why


def test_nor_are_ranks_whose_experts_move(mixtral: DecoderConfig) -> None:
    options = EngineOptions(expert_rebalance_interval_s=60.0)
    (why,) = reasons(mixtral, options)
    assert "experts change their ranks" in why
    assert why_not_replayed(options, ModelSplit(config=mixtral, rank=ALONE)) is None


def test_an_operator_may_do_without(mixtral: DecoderConfig) -> None:
    assert reasons(mixtral, EngineOptions(cuda_graphs=False)) == {"--no-cuda-graphs"}
