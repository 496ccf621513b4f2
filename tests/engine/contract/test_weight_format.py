"""Which format of weights an option becomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.models.card import (
    CheckpointFormat,
    DecoderConfig,
    ModelCard,
    QuantizationConfig,
    QuantMethod,
)
from engine.contract.spec import resolve_weights
from engine.contract.weight_format import WeightFormat

PLAIN = ModelCard(
    name="m",
    source="m",
    format=CheckpointFormat.SAFETENSORS,
    weight_files=(),
    metadata_path=Path("m"),
    architecture="LlamaForCausalLM",
    config=DecoderConfig(
        vocab_size=8,
        hidden_size=4,
        intermediate_size=4,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=4,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        rope_scaling=None,
        max_context_tokens=16,
        tie_word_embeddings=True,
    ),
    checkpoint_dtype="bfloat16",
    weights_digest="w",
    tokenizer_digest="t",
    eos_token_ids=(),
    bos_token_id=None,
    weight_bytes=1,
)
GROUPS = QuantizationConfig(method=QuantMethod.AWQ, bits=4, group=128)
QUANTIZED = replace(PLAIN, quantization=GROUPS)
REORDERED = replace(PLAIN, quantization=replace(GROUPS, is_reordered=True))
FLOATS = replace(PLAIN, quantization=replace(GROUPS, is_float=True))


@pytest.mark.parametrize(
    ("card", "dtype", "device", "expected"),
    [
        (PLAIN, "bfloat16", "cpu", "full"),
        (PLAIN, "float32", "cpu", "full"),
        (QUANTIZED, "bfloat16", "cpu", "stored"),
        (QUANTIZED, "bfloat16", "auto", "stored"),
        (QUANTIZED, "float32", "cpu", "full"),
        (REORDERED, "bfloat16", "cpu", "full"),
        (FLOATS, "bfloat16", "cpu", "full"),
        (FLOATS, "bfloat16", "cuda", "stored"),
    ],
)
def test_auto_keeps_what_kernels_run_and_float32_exact(
    card: ModelCard, dtype: str, device: str, expected: str
) -> None:
    assert resolve_weights(card, "auto", dtype, device) == expected


@pytest.mark.parametrize("form", list(WeightFormat))
def test_a_resolved_format_stays_what_it_is(form: WeightFormat) -> None:
    assert resolve_weights(QUANTIZED, form, "bfloat16", "cuda") is form


def test_8_bit_floats_on_a_cpu_are_refused_with_what_to_choose() -> None:
    with pytest.raises(ConfigError, match="only CUDA devices.*choose int8"):
        resolve_weights(PLAIN, "fp8", "bfloat16", "cpu")


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'int3'; choose auto, full, int8, int4 or fp8"):
        resolve_weights(PLAIN, "int3", "bfloat16", "cpu")
