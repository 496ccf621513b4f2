"""Families in GGUF: the model that was written is the model that is run.

That the files are as llama.cpp writes them is checked by transformers, whose reader is its own;
it knows some head sizes only, which these models have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.model.decoder import Decoder
from tests.engine.model.family_gguf import gguf_card, write_gguf
from tests.engine.model.family_models import VOCAB, random_model
from tests.engine.model.parity import assert_same, generate, random_prompts, reference

PLAIN = {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
GEMMA = {
    "sliding_window": 9,
    "num_hidden_layers": 6,
    "query_pre_attn_scalar": 32,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
    },
}
LINEAR = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
YARN = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 5000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
}
STORED_YARN = {
    "rope__scaling__type": "yarn",
    "rope__scaling__factor": 4.0,
    "rope__scaling__original_context_length": 64,
}
FILES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", "LlamaForCausalLM", {**PLAIN, "hidden_size": 128}, {}),
    "mistral": (
        "llama",
        "MistralForCausalLM",
        {**PLAIN, "sliding_window": 9},
        {"attention__sliding_window": 9},
    ),
    "qwen 2": ("qwen2", "Qwen2ForCausalLM", {**PLAIN, "hidden_size": 128}, {}),
    "qwen 2, yarn": ("qwen2", "Qwen2ForCausalLM", {**YARN, "hidden_size": 128}, STORED_YARN),
    "qwen 3": (
        "qwen3",
        "Qwen3ForCausalLM",
        {**PLAIN, "tie_word_embeddings": True, "head_dim": 128},
        {},
    ),
    "gemma 3": ("gemma3", "Gemma3ForCausalLM", GEMMA, {"attention__sliding_window": 9, **LINEAR}),
}


def written(name: str, folder: Path) -> tuple[Any, Path]:
    architecture, kind, changes, metadata = FILES[name]
    model = random_model(kind, **changes)
    stored = {"rope__freq_base": 5000.0, **metadata}
    return model, write_gguf(model, architecture, folder / "tiny.gguf", **stored)


@pytest.mark.parametrize("name", FILES)
def test_a_gguf_gives_the_logits_of_the_model_it_was_written_from(
    name: str, tmp_path: Path
) -> None:
    model, path = written(name, tmp_path)
    decoder = Decoder.load(gguf_card(path), torch.float32, "cpu")
    prompts = random_prompts((60, 9), VOCAB)
    assert_same(generate(decoder, prompts, 17), reference(model, prompts))


@pytest.mark.parametrize("name", ["llama", "qwen 2", "qwen 3", "gemma 3"])
def test_transformers_reads_the_same_weights_from_the_file(name: str, tmp_path: Path) -> None:
    model, path = written(name, tmp_path)
    kind = getattr(transformers, FILES[name][1])
    theirs = kind.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    for (key, expected), found in zip(
        model.state_dict().items(), theirs.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6, msg=key)
