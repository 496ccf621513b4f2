from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import BadCheckpoint, ModelError, UnsupportedModel
from cluster.models.cache.store import ModelStore
from cluster.models.card import CheckpointFormat, Llama3RopeScaling, ModelCard

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _card(folder: Any) -> ModelCard:
    path = folder.write()
    return ModelStore(path.parent / "home").show(str(path))


def test_a_folder_becomes_a_card(tiny_folder: Any) -> None:
    card = _card(tiny_folder)
    assert (card.name, card.architecture) == ("tiny-model", "LlamaForCausalLM")
    assert (card.format, card.checkpoint_dtype) == (CheckpointFormat.SAFETENSORS, "float32")
    assert card.weight_files == (tiny_folder.path / "model.safetensors",)
    assert (card.eos_token_ids, card.bos_token_id) == ((0,), None)
    assert (card.config.head_dim, card.config.max_context_tokens) == (8, 128)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("architectures", ["GPT2LMHeadModel"], "GPT2LMHeadModel"),
        ("architectures", ["Gemma3ForConditionalGeneration"], "Gemma3ForConditionalGeneration"),
        ("architectures", None, r"architectures \[\]"),
        ("architectures", "LlamaForCausalLM", "list of strings"),
        ("quantization_config", {"quant_method": "gptq"}, "lacks 'bits'"),
        ("hidden_act", "gelu", "'gelu'"),
        ("rope_scaling", {"rope_type": "longrope", "factor": 2.0}, "'longrope'"),
        ("rope_scaling", {"type": "dynamic", "factor": 2.0}, "'dynamic'"),
        ("rope_scaling", {"type": "linear", "factor": 0.5}, "out of range"),
        ("rope_scaling", {"type": "linear"}, "lacks 'factor'"),
        ("rope_scaling", {"type": "yarn", "factor": 4, "beta_fast": 0.5}, "out of range"),
        ("rope_scaling", {"type": "yarn", "factor": 4, "attention_factor": -1.0}, "out of range"),
        ("rope_scaling", {"type": "default", "mrope_section": [1, 1, 2]}, "mrope_section"),
        ("rope_parameters", {"full_attention": {"rope_type": "default"}}, "full_attention"),
        ("rope_parameters", {"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rot"),
        ("rope_scaling", {**LLAMA3, "factor": 0.0}, "out of range"),
        ("rope_scaling", {"rope_type": "llama3"}, "lacks 'factor'"),
        ("rope_scaling", ["llama3"], "must be an object"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor"),
        ("hidden_size", -32, "hidden_size is -32"),
        ("hidden_size", 2**40, "hidden_size"),
        ("hidden_size", "32", "must be int"),
        ("hidden_size", True, "must be int"),
        ("num_hidden_layers", 10**9, "num_layers is 1000000000"),
        ("num_attention_heads", 0, "num_attention_heads is 0"),
        ("num_key_value_heads", 3, "cannot share 3"),
        ("head_dim", 7, "head_dim is 7"),
        ("rms_norm_eps", 0, "rms_norm_eps"),
        ("rope_theta", 10**400, "rope_theta"),
        ("vocab_size", None, "lacks 'vocab_size'"),
        ("eos_token_id", 10**6, "token id 1000000"),
        ("eos_token_id", "end", "token id 'end'"),
        ("tie_word_embeddings", "yes", "must be bool"),
    ],
)
def test_a_wrong_or_foreign_value_is_refused_by_name(
    tiny_folder: Any, key: str, value: object, message: str
) -> None:
    tiny_folder.config[key] = value
    with pytest.raises(ModelError, match=message):
        _card(tiny_folder)


def test_an_unsupported_model_is_refused_before_its_weights_are_opened(tiny_folder: Any) -> None:
    tiny_folder.config["architectures"] = ["FalconForCausalLM"]
    tiny_folder.shards = {}
    with pytest.raises(UnsupportedModel, match="FalconForCausalLM"):
        _card(tiny_folder)


def test_llama_3_scaling_is_read_in_both_spellings(tiny_folder: Any) -> None:
    expected = Llama3RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_context_tokens=8192
    )
    tiny_folder.config["rope_scaling"] = LLAMA3
    assert _card(tiny_folder).config.rope_scaling == expected
    del tiny_folder.config["rope_scaling"], tiny_folder.config["rope_theta"]
    tiny_folder.config["rope_parameters"] = {**LLAMA3, "rope_theta": 5e5}
    assert _card(tiny_folder).config.rope_scaling == expected
    assert _card(tiny_folder).config.rope_theta == 5e5


def test_ends_of_sequence_come_from_generation_config_and_tokenizer(tiny_folder: Any) -> None:
    tiny_folder.files["generation_config.json"] = {"eos_token_id": [5, 7]}
    assert _card(tiny_folder).eos_token_ids == (5, 7, 0)
    tiny_folder.files["tokenizer_config.json"] = {"eos_token": {"content": "hello"}}
    assert _card(tiny_folder).eos_token_ids == (5, 7, 260)


def test_shards_are_taken_from_the_index(tiny_folder: Any) -> None:
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    tensors = {"w": np.zeros((4, 4), dtype=np.float16)}
    tiny_folder.shards = dict.fromkeys(names, tensors)
    tiny_folder.files["model.safetensors.index.json"] = {
        "weight_map": {"b": names[1], "a": names[0], "c": names[1]}
    }
    card = _card(tiny_folder)
    assert [path.name for path in card.weight_files] == names
    assert card.checkpoint_dtype == "float16"
    (tiny_folder.path / names[1]).unlink()
    tiny_folder.shards = {}
    with pytest.raises(BadCheckpoint, match="lacks model-00002"):
        _card(tiny_folder)


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "weights.bin", "", ".."]
)
def test_an_index_that_leads_out_of_the_folder_is_refused(tiny_folder: Any, name: str) -> None:
    tiny_folder.files["model.safetensors.index.json"] = {"weight_map": {"a": name}}
    with pytest.raises(BadCheckpoint, match="plain .safetensors file name"):
        _card(tiny_folder)


def test_a_link_out_of_the_folder_is_refused(tiny_folder: Any, tmp_path: Path) -> None:
    folder = tiny_folder.write()
    outside = tmp_path / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    os.symlink(outside, folder / "model.safetensors")
    tiny_folder.shards = {}
    with pytest.raises(BadCheckpoint, match="outside the model's folder"):
        _card(tiny_folder)


def test_links_to_the_blobs_of_a_hugging_face_cache_are_followed(
    tiny_folder: Any, tmp_path: Path
) -> None:
    tiny_folder.path = tmp_path / "snapshots" / "abc"
    tiny_folder.path.parent.mkdir()
    folder = tiny_folder.write()
    (tmp_path / "blobs").mkdir()
    (folder / "model.safetensors").rename(tmp_path / "blobs" / "f00")
    os.symlink("../../blobs/f00", folder / "model.safetensors")
    tiny_folder.shards = {}
    assert _card(tiny_folder).weight_bytes > 0


def test_a_truncated_or_padded_weight_file_is_refused(tiny_folder: Any) -> None:
    path = tiny_folder.write() / "model.safetensors"
    whole = path.read_bytes()
    tiny_folder.shards = {}
    for damaged in (b"", whole[:4], whole[:20], whole[:-1], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(BadCheckpoint):
            _card(tiny_folder)


def test_a_dtype_that_is_not_run_is_refused_by_name(tiny_folder: Any) -> None:
    tiny_folder.shards["model.safetensors"]["w"] = np.zeros(4, dtype=np.int64)
    with pytest.raises(UnsupportedModel, match="'I64'"):
        _card(tiny_folder)


def test_pickled_weights_are_not_read(tiny_folder: Any) -> None:
    tiny_folder.shards = {}
    folder = tiny_folder.write()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(UnsupportedModel, match="safetensors"):
        _card(tiny_folder)


@pytest.mark.parametrize(
    "content", ["{", "[]", "[" * 100_000, '{"a": 1' + "0" * 5000 + "}", "\xff"]
)
def test_a_config_that_is_no_sound_json_object_is_refused(tiny_folder: Any, content: str) -> None:
    folder = tiny_folder.write()
    (folder / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadCheckpoint, match=r"config\.json"):
        ModelStore(folder / "home").show(str(folder))


def test_a_huge_config_is_not_read(tiny_folder: Any) -> None:
    folder = tiny_folder.write()
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 30)  # sparse
    with pytest.raises(BadCheckpoint, match="1,073,741,824 bytes"):
        ModelStore(folder / "home").show(str(folder))


def test_a_folder_without_a_fast_tokenizer_is_refused(tiny_folder: Any) -> None:
    del tiny_folder.files["tokenizer.json"]
    with pytest.raises(BadCheckpoint, match=r"lacks tokenizer\.json"):
        _card(tiny_folder)


def test_digests_follow_the_contents(tiny_folder: Any) -> None:
    first = _card(tiny_folder)
    assert _card(tiny_folder).weights_digest == first.weights_digest
    tiny_folder.files["chat_template.jinja"] = "x"
    second = _card(tiny_folder)
    assert second.tokenizer_digest != first.tokenizer_digest
    assert second.weights_digest == first.weights_digest
    tiny_folder.config["rope_theta"] = 20000.0  # the same weights turn at another speed
    turned = _card(tiny_folder).weights_digest
    assert turned != first.weights_digest
    tiny_folder.config["rope_theta"] = 10000.0
    tiny_folder.shards["model.safetensors"]["model.norm.weight"][0] = 1.0
    assert _card(tiny_folder).weights_digest != first.weights_digest
