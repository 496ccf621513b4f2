"""Rotations of every scaling against transformers' frequencies, and tables per layer type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from cluster.models.card import DecoderConfig, WindowConfig
from cluster.models.hf.config import decoder_of_hf
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.layers.rope_table import RopeTables, magnitude, scaled_frequencies
from tests.engine.model.tiny_llama import (
    decoder_config,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)

CPU = torch.device("cpu")
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": YARN,
    "yarn of DeepSeek": {**YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    "yarn, mscale alone": {**YARN, "mscale": 0.707},
    "yarn, attention factor": {**YARN, "attention_factor": 1.25},
    "yarn, untruncated": {**YARN, "truncate": False, "beta_fast": 20.0, "beta_slow": 2.0},
    "yarn, a ramp of no width": {**YARN, "beta_fast": 4.0, "beta_slow": 4.0, "truncate": False},
    "yarn, a ramp past the ends": {**YARN, "beta_fast": 1e5, "beta_slow": 1e-5},
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_frequencies_and_magnitude_are_those_of_transformers(name: str, theta: float) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    values = {
        "hidden_size": 256,
        "num_attention_heads": 2,
        "max_position_embeddings": 32768,
        "rope_parameters": {**SCALINGS[name], "rope_theta": theta},
    }
    theirs = transformers.LlamaConfig(**values)
    stated = {**theirs.to_dict(), "architectures": ["LlamaForCausalLM"]}
    ours = decoder_of_hf(stated, "config.json")[1]
    expected, expected_magnitude = ROPE_INIT_FUNCTIONS[SCALINGS[name]["rope_type"]](theirs, CPU)
    assert ours.rope_scaling is not None
    found = scaled_frequencies(ours.rope_theta, ours.head_dim, ours.rope_scaling)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=0)
    assert magnitude(ours.rope_scaling) == pytest.approx(expected_magnitude)


def test_windowed_layers_share_the_table_unless_they_have_a_theta_of_their_own() -> None:
    config: DecoderConfig = decoder_config(tiny_config())
    assert (alone := RopeTables.of(config, None, CPU)).windowed is alone.plain
    window = WindowConfig(num_tokens=4, layers=frozenset({1}))
    same = RopeTables.of(replace(config, window=window), None, CPU)
    assert same.windowed is same.plain
    own = RopeTables.of(replace(config, window=replace(window, rope_theta=100.0)), None, CPU)
    assert torch.equal(own.plain, alone.plain)
    slower = RopeTables.of(replace(config, rope_theta=100.0), None, CPU).plain
    assert torch.equal(own.windowed, slower)


def test_a_shorter_context_has_a_shorter_table_and_the_same_logits(tmp_path: Path) -> None:
    card = saved_card(random_model(tiny_config()), tmp_path)
    whole = Decoder.load(card, torch.float32, "cpu")
    short = Decoder.load(card, torch.float32, "cpu", max_context_tokens=20)
    assert (whole.config.max_context_tokens, short.config.max_context_tokens) == (128, 20)
    assert RopeTables.of(short.config, None, CPU).plain.shape[0] == 20
    pool = KvPool(KvLayout.of(whole.config, 4, torch.float32), 8, "cpu")
    batch = ragged_batch([(list(range(20)), 0, [1, 2, 3, 4, 5])])
    assert torch.equal(whole.forward(batch, pool), short.forward(batch, pool))
