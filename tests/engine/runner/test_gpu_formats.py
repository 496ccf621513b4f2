from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.models.card import ModelCard, QuantizationConfig, QuantMethod
from engine.contract.spec import EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.runner.gpu_formats import weights_on_gpu
from kernels.triton.gpu import ADA, AMPERE
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config

FLOATS = QuantizationConfig(method=QuantMethod.FP8, bits=8, group=None, is_float=True)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    folder: Path = tmp_path_factory.mktemp("card")
    return saved_card(random_model(tiny_config()), folder)


@pytest.fixture
def spec(card: ModelCard) -> EngineSpec:
    return EngineSpec(card=card, dtype="bfloat16", role=Role.DECODE, worker_id="d", incarnation="1")


def test_a_gpu_without_8_bit_floats_refuses_what_was_asked_for_by_name(spec: EngineSpec) -> None:
    with pytest.raises(ConfigError, match=r"kv is fp8.* 8\.9 on; this one has 8\.0"):
        weights_on_gpu(AMPERE, WeightFormat.FULL, msgspec.structs.replace(spec, kv="fp8"))
    with pytest.raises(ConfigError, match=r"weights is fp8.*choose --weights int8"):
        weights_on_gpu(AMPERE, WeightFormat.FP8, spec)


def test_there_a_checkpoint_of_8_bit_floats_is_planned_as_what_it_becomes(
    card: ModelCard, spec: EngineSpec
) -> None:
    floats = msgspec.structs.replace(spec, card=replace(card, quantization=FLOATS))
    assert weights_on_gpu(AMPERE, WeightFormat.STORED, floats) is WeightFormat.FULL
    assert weights_on_gpu(ADA, WeightFormat.STORED, floats) is WeightFormat.STORED


def test_other_formats_stay_what_they_are(spec: EngineSpec) -> None:
    assert weights_on_gpu(AMPERE, WeightFormat.STORED, spec) is WeightFormat.STORED
    assert weights_on_gpu(AMPERE, WeightFormat.INT4, spec) is WeightFormat.INT4
