from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import BadCheckpoint, ModelError, UnsupportedModel
from cluster.models.cache.store import ModelStore
from cluster.models.card import (
    CheckpointFormat,
    DecoderConfig,
    LinearRopeScaling,
    Llama3RopeScaling,
    ModelCard,
    WindowConfig,
    YarnRopeScaling,
)
from cluster.models.gguf.config import decoder_of_gguf
from cluster.models.gguf.header import read_gguf_header
from cluster.models.gguf.rope_factors import llama3_divisors


def _config(tiny: Any, tmp_path: Path) -> DecoderConfig:
    return decoder_of_gguf(read_gguf_header(tiny.write(tmp_path / "tiny.gguf")))[1]


def test_smollm2s_card_states_its_facts(smollm2: ModelCard) -> None:
    assert replace(smollm2.config, rms_norm_eps=1e-5) == DecoderConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        rope_scaling=None,
        max_context_tokens=8192,
        tie_word_embeddings=True,
    )
    assert smollm2.config.rms_norm_eps == pytest.approx(1e-5, rel=1e-6)  # stored as float32
    assert (smollm2.name, smollm2.format, smollm2.checkpoint_dtype) == (
        "smollm2",
        CheckpointFormat.GGUF,
        "Q4_1",
    )
    assert (smollm2.eos_token_ids, smollm2.bos_token_id) == ((2,), 1)
    assert smollm2.weight_bytes == 98_362_432


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.expert_count", 8, "8 experts"),
        ("llama.rope.scaling.type", "longrope", "'longrope'"),
        ("llama.rope.scaling.factor", -2.0, "factor is -2"),
        ("llama.attention.scale", 0.1, "attention.scale"),
        ("llama.attention.causal", False, "not causal"),
        ("llama.attention.sliding_window", "wide", "must be int"),
        ("llama.attention.value_length", 16, "value_length is 16"),
        ("llama.rope.dimension_count", 4, "dimension_count is 4"),
        ("llama.attention.head_count_kv", 3, "cannot share 3"),
        ("llama.block_count", 3, "blk.2.attn_norm"),
        ("llama.block_count", 2**31, "num_layers is 2147483648"),
        ("llama.attention.head_count", 0, "head_count is 0"),
        ("llama.context_length", 0, "max_context_tokens is 0"),
        ("llama.context_length", "long", "must be int"),
        ("llama.rope.freq_base", -1.0, "rope_theta"),
        ("llama.rope.freq_base", float("nan"), "rope_theta"),
        ("llama.vocab_size", 7, "token_embd.weight"),
        ("llama.attention.head_count", [4, 2], "layer to layer"),
    ],
)
def test_a_wrong_or_foreign_value_is_refused_by_name(
    tiny_gguf: Any, tmp_path: Path, key: str, value: object, message: str
) -> None:
    tiny_gguf.metadata[key] = value
    with pytest.raises(ModelError, match=message):
        _config(tiny_gguf, tmp_path)


def test_another_architecture_is_refused_by_name(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.architecture = "falcon"
    with pytest.raises(UnsupportedModel, match="'falcon'; supported in GGUF: llama, qwen2"):
        _config(tiny_gguf, tmp_path)


def test_an_unknown_tokenizer_is_refused_before_weights_are_hashed(
    tiny_gguf: Any, tmp_path: Path
) -> None:
    tiny_gguf.metadata["tokenizer.ggml.model"] = "bert"
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModel, match="'bert'"):
        ModelStore(tmp_path / "home").show(str(path))
    assert not (tmp_path / "home").exists()


def test_an_unknown_pre_tokenizer_is_refused_by_name(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.metadata["tokenizer.ggml.pre"] = "martian"
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedModel, match="'martian'"):
        ModelStore(tmp_path / "home").show(str(path))


def test_equal_values_for_all_layers_are_one_value(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.metadata["llama.attention.head_count"] = [4, 4]
    assert _config(tiny_gguf, tmp_path).num_heads == 4


def test_an_output_matrix_unties_the_embeddings(tiny_gguf: Any, tmp_path: Path) -> None:
    assert _config(tiny_gguf, tmp_path).tie_word_embeddings
    tiny_gguf.tensors["output.weight"] = tiny_gguf.tensors["token_embd.weight"]
    assert not _config(tiny_gguf, tmp_path).tie_word_embeddings


def test_biases_on_some_projections_only_are_refused(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.tensors["blk.0.attn_q.bias"] = np.zeros(32, dtype=np.float32)
    with pytest.raises(UnsupportedModel, match="biases on attn_q only"):
        _config(tiny_gguf, tmp_path)


def test_a_missing_tensor_is_named(tiny_gguf: Any, tmp_path: Path) -> None:
    del tiny_gguf.tensors["blk.1.ffn_up.weight"]
    with pytest.raises(BadCheckpoint, match=r"blk\.1\.ffn_up\.weight"):
        _config(tiny_gguf, tmp_path)


def test_a_llama_with_a_window_has_it_in_every_layer(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.metadata["llama.attention.sliding_window"] = 100
    config = _config(tiny_gguf, tmp_path)
    assert config.window == WindowConfig(num_tokens=100, layers=frozenset({0, 1}))
    assert config.max_context_tokens == 128
    tiny_gguf.metadata["llama.attention.sliding_window"] = 128
    assert _config(tiny_gguf, tmp_path).window is None


def test_linear_scaling_is_read_in_both_spellings(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.metadata["llama.rope.scale_linear"] = 4.0
    assert _config(tiny_gguf, tmp_path).rope_scaling == LinearRopeScaling(factor=4.0)
    tiny_gguf.metadata["llama.rope.scaling.type"] = "linear"
    tiny_gguf.metadata["llama.rope.scaling.factor"] = 2.0
    assert _config(tiny_gguf, tmp_path).rope_scaling == LinearRopeScaling(factor=2.0)
    tiny_gguf.metadata["llama.rope.scaling.type"] = "none"
    assert _config(tiny_gguf, tmp_path).rope_scaling is None


def test_yarn_stretches_the_stated_context(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.metadata["llama.rope.scaling.type"] = "yarn"
    tiny_gguf.metadata["llama.rope.scaling.factor"] = 4.0
    config = _config(tiny_gguf, tmp_path)
    scaling = YarnRopeScaling(factor=4.0, original_max_context_tokens=128)
    assert (config.rope_scaling, config.max_context_tokens) == (scaling, 512)
    tiny_gguf.metadata["llama.rope.scaling.yarn_ext_factor"] = 0.5
    with pytest.raises(UnsupportedModel, match="yarn_ext_factor 0.5"):
        _config(tiny_gguf, tmp_path)


def test_llama_3_scaling_is_recovered_from_its_factors(tiny_gguf: Any, tmp_path: Path) -> None:
    scaling = Llama3RopeScaling(
        factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_context_tokens=8192
    )
    factors = np.array(llama3_divisors(scaling, 500000.0, 8), dtype=np.float32)
    tiny_gguf.metadata["llama.rope.freq_base"] = 500000.0
    tiny_gguf.tensors["rope_freqs.weight"] = factors
    assert _config(tiny_gguf, tmp_path).rope_scaling == scaling


def test_other_rope_factors_are_refused(tiny_gguf: Any, tmp_path: Path) -> None:
    tiny_gguf.tensors["rope_freqs.weight"] = np.array([1, 2, 3, 4], dtype=np.float32)
    with pytest.raises(UnsupportedModel, match=r"Llama 3\.1"):
        _config(tiny_gguf, tmp_path)


def test_the_divisors_are_those_of_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    stated = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(hidden_size=128, num_attention_heads=1, rope_parameters=stated)
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    scaling = Llama3RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_context_tokens=8192
    )
    divisors = llama3_divisors(scaling, 500000.0, 128)
    ours = [500000.0 ** (-2 * i / 128) / divisor for i, divisor in enumerate(divisors)]
    assert ours == pytest.approx(expected.tolist(), rel=1e-5)  # float32 there
