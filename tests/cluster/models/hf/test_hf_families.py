"""config.json of each family: as published, and with what an absent key means in transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import transformers

from cluster.errors import BadCheckpoint, ModelError, UnsupportedModel
from cluster.models.card import (
    Activation,
    DecoderConfig,
    LinearRopeScaling,
    WindowConfig,
    YarnRopeScaling,
)
from cluster.models.hf.config import decoder_of_hf

SHAPE: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 32,
    "num_attention_heads": 64,
}
DENSE = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Gemma3ForCausalLM",
)
GEMMA_1B = {
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}


def config_of(architecture: str, **values: Any) -> DecoderConfig:
    return decoder_of_hf({"architectures": [architecture], **SHAPE, **values}, "config.json")[1]


def windowed_layers(config: DecoderConfig) -> set[int]:
    return set() if config.window is None else set(config.window.layers)


def agrees(architecture: str, **values: Any) -> DecoderConfig:
    """Ours, after it was compared with what transformers makes of the same keys."""
    ours = config_of(architecture, **values)
    kind = getattr(transformers, architecture).config_class
    theirs = kind(**{**SHAPE, **values})
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == getattr(theirs, "head_dim", 256 // 64)
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.max_context_tokens == theirs.max_position_embeddings
    rope = theirs.rope_parameters
    assert ours.rope_theta == rope.get("full_attention", rope)["rope_theta"]
    types = getattr(theirs, "layer_types", None)
    if types is not None:
        expected = {index for index, kind in enumerate(types) if kind == "sliding_attention"}
        assert windowed_layers(ours) == expected
    if ours.window is not None:
        assert ours.window.num_tokens == theirs.sliding_window
    return ours


@pytest.mark.parametrize("architecture", DENSE)
def test_absent_keys_mean_what_they_mean_in_transformers(architecture: str) -> None:
    agrees(architecture)


@pytest.mark.parametrize("architecture", [DENSE[0], *DENSE[2:4]])
def test_an_explicit_null_of_kv_heads_is_as_many_as_query_heads(architecture: str) -> None:
    assert agrees(architecture, num_key_value_heads=None).num_kv_heads == 64


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(
    "values",
    [
        {"use_sliding_window": True},
        {"use_sliding_window": False, "sliding_window": 100},
        {"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 3},
        {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 3},
        {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"] * 16},
        {"use_sliding_window": True, "max_window_layers": 40},
    ],
)
def test_windows_of_qwen_are_in_the_layers_that_transformers_gives_them(
    architecture: str, values: dict[str, Any]
) -> None:
    agrees(architecture, **values)


def test_mistral_has_its_window_in_every_layer_or_none() -> None:
    every = frozenset(range(32))
    assert config_of("MistralForCausalLM").window == WindowConfig(num_tokens=4096, layers=every)
    seven_b = {"sliding_window": 4096, "max_position_embeddings": 32768}
    assert agrees("MistralForCausalLM", **seven_b).max_context_tokens == 32768
    assert config_of("MistralForCausalLM", sliding_window=None).window is None
    as_wide = {"sliding_window": 4096, "max_position_embeddings": 4096}
    assert config_of("MistralForCausalLM", **as_wide).window is None


def test_gemma_3_is_read_in_the_old_spelling() -> None:
    config = decoder_of_hf({"architectures": ["Gemma3ForCausalLM"], **GEMMA_1B}, "config.json")[1]
    layers = frozenset(set(range(26)) - {5, 11, 17, 23})
    assert config == DecoderConfig(
        vocab_size=262144,
        hidden_size=1152,
        intermediate_size=6912,
        num_layers=26,
        num_heads=4,
        num_kv_heads=1,
        head_dim=256,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        rope_scaling=None,
        max_context_tokens=32768,
        tie_word_embeddings=True,
        activation=Activation.GELU_TANH,
        has_qk_norm=True,
        has_post_norms=True,
        norm_offset=1.0,
        embedding_scale=math.sqrt(1152),
        attention_scale=1 / 16,
        window=WindowConfig(num_tokens=512, layers=layers, rope_theta=10000.0),
    )


def test_gemma_3_means_the_same_in_both_spellings() -> None:
    old = {
        **GEMMA_1B,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_local_base_freq": 500,
    }
    theirs = transformers.Gemma3TextConfig(**old)
    new = {**theirs.to_dict(), "architectures": ["Gemma3ForCausalLM"]}
    assert "rope_local_base_freq" not in new
    ours = decoder_of_hf(new, "config.json")
    assert ours == decoder_of_hf({"architectures": ["Gemma3ForCausalLM"], **old}, "config.json")
    assert ours[1].rope_scaling == LinearRopeScaling(factor=8.0)
    assert ours[1].window is not None
    assert ours[1].window.rope_theta == 500


def test_yarn_stretches_the_stated_context() -> None:
    qwen = {
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        },
    }
    config = config_of("Qwen2ForCausalLM", **qwen)
    assert config.max_context_tokens == 131072
    scaling = YarnRopeScaling(factor=4.0, original_max_context_tokens=32768)
    assert config.rope_scaling == scaling


def test_yarn_without_a_factor_has_the_ratio_of_its_contexts() -> None:
    rope = {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 1024}
    config = config_of("LlamaForCausalLM", rope_parameters=rope, max_position_embeddings=8192)
    assert config.rope_scaling == YarnRopeScaling(factor=8.0, original_max_context_tokens=1024)


def test_the_original_context_beside_the_scaling_comes_first() -> None:
    rope = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024}
    values = {"rope_scaling": rope, "original_max_position_embeddings": 512}
    scaling = config_of("LlamaForCausalLM", **values).rope_scaling
    assert scaling == YarnRopeScaling(factor=2.0, original_max_context_tokens=512)


@pytest.mark.parametrize(
    ("architecture", "values", "message"),
    [
        ("Gemma3ForCausalLM", {"final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0"),
        ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional"),
        ("Gemma3ForCausalLM", {"hidden_activation": "gelu"}, "'gelu'; supported: silu"),
        ("Gemma3ForCausalLM", {"rope_parameters": {"rope_type": "default"}}, "name neither"),
        ("Gemma3ForCausalLM", {"layer_types": ["chunked_attention"] * 32}, "chunked_attention"),
        (
            "Gemma3ForCausalLM",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "scaled positions in windowed layers",
        ),
        ("MistralForCausalLM", {"layer_types": ["full_attention"] * 32}, "layers are alike"),
    ],
)
def test_an_option_that_is_not_run_is_refused_by_name(
    architecture: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        config_of(architecture, **values)


@pytest.mark.parametrize(
    ("architecture", "values", "message"),
    [
        ("Gemma3ForCausalLM", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ("Gemma3ForCausalLM", {"sliding_window": None}, "sliding_window is none"),
        ("Gemma3ForCausalLM", {"sliding_window": 0}, "sliding_window is 0"),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ("Gemma3ForCausalLM", {"rope_local_base_freq": -1.0}, "rope_theta is -1.0"),
        ("Gemma3ForCausalLM", {"layer_types": ["full_attention"]}, "1 entries for 32 layers"),
        ("Gemma3ForCausalLM", {"hidden_size": -1}, "hidden_size is -1"),
        ("MistralForCausalLM", {"sliding_window": -7}, "sliding_window is -7"),
        ("Qwen2ForCausalLM", {"num_hidden_layers": 10**12}, "num_layers is 1000000000000"),
        (
            "LlamaForCausalLM",
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}},
            "YaRN needs it above 1",
        ),
        (
            "LlamaForCausalLM",
            {"rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 0}},
            "out of range",
        ),
    ],
)
def test_a_value_that_cannot_be_is_a_bad_checkpoint(
    architecture: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadCheckpoint, match=message):
        config_of(architecture, **values)


@pytest.mark.parametrize("architecture", DENSE)
@pytest.mark.parametrize("key", ["hidden_size", "rope_theta", "sliding_window", "layer_types"])
@pytest.mark.parametrize("value", [-1, 0, 2**70, 1e400, float("nan"), "x", [], {}, True, [1]])
def test_any_value_is_read_or_refused(architecture: str, key: str, value: object) -> None:
    try:
        config_of(architecture, **{key: value})
    except ModelError as error:
        assert "config.json" in str(error)
