"""Each family against transformers: tiny random weights of the real architecture, in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model.decoder import Decoder
from engine.model.weights.decoder_weights import DecoderWeights
from kernels.dispatch.kernel_sets import REFERENCE
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.parity import assert_same, generate, random_prompts, reference

PROMPT_LENGTHS = (70, 23, 1)
CHUNKS = (512, 13)


def rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **values}}


LLAMA3 = rope(
    "llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
LOCAL_AND_SCALED = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
    }
}
GEMMA = {"sliding_window": 9, "layer_types": None, "sliding_window_pattern": 3}
MIXED = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 2": ("LlamaForCausalLM", {}),
    "llama, linear": ("LlamaForCausalLM", rope("linear", factor=3.0)),
    "llama 3": ("LlamaForCausalLM", LLAMA3),
    "llama, yarn": ("LlamaForCausalLM", rope("yarn", **YARN)),
    "llama, yarn, untruncated": (
        "LlamaForCausalLM",
        rope("yarn", **YARN, truncate=False, beta_fast=8.0, beta_slow=0.5),
    ),
    "llama, yarn, mscale": (
        "LlamaForCausalLM",
        rope("yarn", **YARN, mscale=1.2, mscale_all_dim=0.6),
    ),
    "llama, yarn, attention factor": (
        "LlamaForCausalLM",
        rope("yarn", **YARN, attention_factor=0.8),
    ),
    "llama, biased, gelu": (
        "LlamaForCausalLM",
        {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_pytorch_tanh"},
    ),
    "mistral": ("MistralForCausalLM", {"sliding_window": 9}),
    "mistral without window": ("MistralForCausalLM", {"sliding_window": None}),
    "qwen 2": ("Qwen2ForCausalLM", {}),
    "qwen 2, windows in the last layers": (
        "Qwen2ForCausalLM",
        {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2},
    ),
    "qwen 2, windows by layer": (
        "Qwen2ForCausalLM",
        {"use_sliding_window": True, "sliding_window": 9, "layer_types": MIXED},
    ),
    "qwen 3": ("Qwen3ForCausalLM", {"tie_word_embeddings": True}),
    "qwen 3, biased, yarn": (
        "Qwen3ForCausalLM",
        {"attention_bias": True, **rope("yarn", **YARN)},
    ),
    "gemma 3": ("Gemma3ForCausalLM", {**GEMMA, "query_pre_attn_scalar": 24}),
    "gemma 3, scaled": ("Gemma3ForCausalLM", {**GEMMA, **LOCAL_AND_SCALED}),
    "gemma 3, a window wider than the prompts": (
        "Gemma3ForCausalLM",
        {"sliding_window": 200, "layer_types": MIXED, "attention_bias": True, **LOCAL_AND_SCALED},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    architecture, changes = FAMILIES[family]
    model = random_model(architecture, **changes)
    decoder = Decoder.load(saved_card(model, tmp_path), torch.float32, "cpu")
    prompts = random_prompts(PROMPT_LENGTHS, VOCAB)
    expected = reference(model, prompts)
    for chunk_tokens in CHUNKS:
        assert_same(generate(decoder, prompts, chunk_tokens), expected)


@pytest.mark.parametrize("family", ["mistral", "gemma 3, scaled"])
def test_the_reference_kernels_give_the_same(family: str, tmp_path: Path) -> None:
    architecture, changes = FAMILIES[family]
    model = random_model(architecture, **changes)
    weights = DecoderWeights(saved_card(model, tmp_path), torch.float32, torch.device("cpu"))
    decoder = Decoder(weights, REFERENCE)
    prompts = random_prompts(PROMPT_LENGTHS, VOCAB)
    assert_same(generate(decoder, prompts, 13), reference(model, prompts))


@pytest.mark.parametrize("family", ["mistral", "qwen 2", "qwen 3", "gemma 3"])
def test_bfloat16_is_as_near_to_float32_as_transformers_is(family: str, tmp_path: Path) -> None:
    architecture, changes = FAMILIES[family]
    model = random_model(architecture, **changes).bfloat16()
    decoder = Decoder.load(saved_card(model, tmp_path), torch.bfloat16, "cpu")
    prompts = random_prompts([90], VOCAB)
    theirs = reference(model, prompts)[0][1][:90]
    exact = reference(model.float(), prompts)[0][1][:90]
    ours = generate(decoder, prompts, 512)[0][1][:90]
    assert (ours - exact).abs().mean() <= (theirs - exact).abs().mean()
