from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.models.card import ModelCard, QuantizationConfig, QuantMethod
from engine.contract.spec import EngineLaunch, EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.runner.gpu_formats import weights_on_cpu, weights_on_gpu
from kernels.triton.gpu import Gpu
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.kernels.gpus import ADA, AMPERE

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


def test_a_cpu_refuses_8_bit_floats_by_name_and_dequantizes_a_checkpoints_own(
    card: ModelCard, spec: EngineSpec
) -> None:
    with pytest.raises(ConfigError, match="only CUDA devices.*choose int8"):
        weights_on_cpu(msgspec.structs.replace(spec, weights=WeightFormat.FP8))
    floats = msgspec.structs.replace(
        spec, card=replace(card, quantization=FLOATS), weights=WeightFormat.STORED
    )
    assert weights_on_cpu(floats) is WeightFormat.FULL


def test_a_spec_carries_its_format_to_the_engine_process(spec: EngineSpec) -> None:
    told = msgspec.structs.replace(spec, weights=WeightFormat.INT8)
    launch = EngineLaunch(spec=told, commands_address="a", frames_address="b")
    assert EngineLaunch.unpack(launch.pack()).spec.weights is WeightFormat.INT8


def test_a_gpu_that_is_too_old_is_refused_before_a_weight_is_read(spec: EngineSpec) -> None:
    turing = Gpu(capability=(7, 5), shared_bytes=64 * 1024)
    with pytest.raises(ConfigError, match=r"capability 7\.5; the kernels need 8\.0"):
        weights_on_gpu(turing, WeightFormat.FULL, spec)
