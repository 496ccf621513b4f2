"""Heads by their config.json: both layouts, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadCheckpoint, ModelError, UnsupportedModel
from cluster.models.cache.store import ModelStore
from cluster.models.heads.eagle3 import heads_of_eagle3, is_eagle3
from cluster.models.heads.tensors import needed_shapes

LAYER: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
}
AUTHORS = LAYER | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000}
SPECULATORS = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "transformer_layer_config": LAYER,
    "draft_vocab_size": 32000,
    "norm_before_residual": True,
    "target_hidden_size": 4096,
}
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


def test_the_authors_layout_is_read() -> None:
    name, config = heads_of_eagle3(AUTHORS, "config.json")
    assert name == "LlamaForCausalLMEagle3"
    assert (config.layer.vocab_size, config.draft_vocab_size) == (128256, 32000)
    assert config.layers_of(32) == (2, 16, 29)
    assert not config.norms_before_residual
    shapes = needed_shapes(config, 3 * 4096)
    assert shapes["fc.weight"] == (4096, 12288)
    assert shapes["midlayer.self_attn.k_proj.weight"] == (1024, 8192)
    assert shapes["d2t"] == (32000,)


def test_speculators_layout_is_read() -> None:
    name, config = heads_of_eagle3(SPECULATORS, "config.json")
    assert name == "Eagle3Speculator"
    assert config.norms_before_residual
    assert config.target_hidden_size == 4096
    assert "layers.0.hidden_norm.weight" in needed_shapes(config, 3 * 4096)


def test_layers_are_counted_by_what_they_give_or_by_what_comes_into_them() -> None:
    _, given = heads_of_eagle3(AUTHORS | {"eagle_config": {LAYER_IDS: [1, 15, 28]}}, "a")
    _, taken = heads_of_eagle3(SPECULATORS | {LAYER_IDS: [2, 16, 29]}, "b")
    assert given.layers_of(32) == taken.layers_of(32) == (2, 16, 29)


@pytest.mark.parametrize(
    ("values", "is_head"),
    [
        (AUTHORS, True),
        (SPECULATORS, True),
        (LAYER | {"architectures": ["LlamaForCausalLM"]}, False),
        ({"architectures": ["LlamaForCausalLMEagle"]}, False),
        ({"architectures": "Eagle3"}, False),
        ({}, False),
    ],
)
def test_heads_are_told_from_models(values: dict[str, Any], is_head: bool) -> None:
    assert is_eagle3(values) is is_head


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"model_type": "qwen3"}, UnsupportedModel, "model_type 'qwen3'"),
        ({"num_hidden_layers": 2}, UnsupportedModel, "a head of 2 layers"),
        ({"attention_bias": True}, UnsupportedModel, "attention_bias True"),
        ({"fc_norm": True}, UnsupportedModel, "fc_norm True"),
        ({"eagle_config": {"norm_output": True}}, UnsupportedModel, "norm_output True"),
        (
            {"eagle_config": {"use_aux_hidden_state": False}},
            UnsupportedModel,
            "use_aux_hidden_state false",
        ),
        ({"eagle_config": {LAYER_IDS: [3, 2]}}, BadCheckpoint, "they must rise"),
        ({"eagle_config": {LAYER_IDS: list(range(9))}}, BadCheckpoint, "be few"),
        ({"draft_vocab_size": 0}, BadCheckpoint, "vocab_size is 0"),
        ({"hidden_size": "big"}, BadCheckpoint, "hidden_size"),
    ],
)
def test_what_is_not_run_is_refused_by_its_key(
    changes: dict[str, Any], kind: type[ModelError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        heads_of_eagle3(AUTHORS | changes, "config.json")


def test_a_folder_of_something_else_is_no_head(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "home")
    assert store.resolve_heads(str(tmp_path)) is None
    (tmp_path / "config.json").write_text(json.dumps(LAYER))
    assert store.resolve_heads(str(tmp_path)) is None
    assert store.resolve_heads("smollm2") is None


def test_a_head_is_named_by_its_weights_and_its_config(tmp_path: Path) -> None:
    """As a model is: equal digests mean equal guesses."""
    digests = list[str]()
    for name, eps in (("a", 1e-5), ("b", 1e-5), ("c", 1e-6)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(AUTHORS | {"rms_norm_eps": eps}))
        (folder / "model.safetensors").write_bytes(b"weights")
        card = ModelStore(tmp_path / "home").resolve_heads(str(folder))
        assert card is not None
        assert card.name == name
        digests.append(card.weights_digest)
    assert digests[0] == digests[1] != digests[2]
