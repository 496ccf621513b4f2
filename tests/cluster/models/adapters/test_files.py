"""What of an adapter's files is taken, and what is refused by name."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from cluster.errors import AdapterRefused, AdapterUnread
from cluster.models.adapters import plain_file, tensor_file
from cluster.models.adapters.files import adapter_folder, read_adapter
from cluster.models.adapters.settings import read_settings
from cluster.models.adapters.targets import adapter_targets, values_per_lora_rank
from cluster.models.adapters.tensor_file import MAX_HEADER_BYTES
from cluster.models.card import DecoderConfig, LatentConfig, MixtureConfig
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank
from tests.adapter_files import random_tensors, save_adapter

CONFIG = DecoderConfig(
    vocab_size=61,
    hidden_size=96,
    intermediate_size=96,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    rope_scaling=None,
    max_context_tokens=128,
    tie_word_embeddings=True,
)
GOOD: dict[str, Any] = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}


def settings(**changes: Any) -> Any:
    return read_settings({**GOOD, **changes}, "adapter_config.json")


def refused(root: Path, folder: Path, config: DecoderConfig = CONFIG) -> str:
    with pytest.raises(AdapterRefused) as caught:
        read_adapter(root, folder, config)
    return caught.value.message


def test_scales_are_as_peft_has_them() -> None:
    assert settings().scale_of("model.layers.0.mlp.up_proj") == 2.0
    assert settings(use_rslora=True).scale_of("x") == 16 / 8**0.5
    patterned = settings(
        rank_pattern={"q_proj": 4, r"layers\.1\..*down_proj": 2}, alpha_pattern={"q_proj": 8}
    )
    assert patterned.rank_of("model.layers.0.self_attn.q_proj") == 4
    assert patterned.scale_of("model.layers.0.self_attn.q_proj") == 2.0
    assert patterned.rank_of("model.layers.1.mlp.down_proj") == 2
    assert patterned.rank_of("model.layers.0.mlp.down_proj") == 8
    assert patterned.rank_of("model.layers.0.self_attn.extra_q_proj") == 8


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"target_parameters": ["experts"]}, "target_parameters"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens"),
        ({"loftq_config": {"bits": 4}}, "loftq_config"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"some_new_setting": 3}, "some_new_setting"),
        ({"r": 0}, "r is 0"),
        ({"r": 257}, "supported: 1 to 256"),
        ({"r": True}, "r"),
        ({"lora_alpha": "16"}, "lora_alpha"),
        ({"lora_alpha": float("inf")}, "lora_alpha is inf"),
        ({"rank_pattern": {"([a-z_.0-9]+)+X": 4}}, None),
        ({"rank_pattern": {"(": 4}}, "rank_pattern has '('"),
        ({"rank_pattern": {"a" * 201: 4}}, "a pattern of 201 characters"),
        ({"rank_pattern": {f"{at}.*" + "a" * 180: 4 for at in range(12)}}, "allowed: 2048"),
        ({"rank_pattern": {str(at): 4 for at in range(1025)}}, "1025 entries"),
        ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern 'q_proj'"),
        ({"target_modules": [1]}, "target_modules"),
        ({"target_modules": ["x"] * 2049}, "target_modules has 2049 names"),
    ],
)
def test_settings_that_are_not_supported_are_refused_by_name(
    changes: dict[str, Any], named: str | None
) -> None:
    if named is None:  # it would keep `re` busy for hours
        assert settings(**changes).rank_of("model.layers.0.self_attn.q_proj") == 8
        return
    with pytest.raises(AdapterRefused) as caught:
        settings(**changes)
    assert named in caught.value.message


def test_settings_without_effect_are_let_be() -> None:
    assert settings(
        lora_dropout=0.1, use_dora=False, modules_to_save=None, peft_version="0.21", bias="none"
    ) == settings(inference_mode=True, init_lora_weights=True, loftq_config={})


def test_a_good_adapter_lands_whole(tmp_path: Path) -> None:
    files = read_adapter(tmp_path, save_adapter(tmp_path / "a", CONFIG, rank=16), CONFIG)
    assert files.modules.keys() == adapter_targets(CONFIG).keys()
    assert files.lora_rank == 16
    assert {module.scale for module in files.modules.values()} == {0.5}


def test_a_digest_is_of_what_changes_answers_and_of_nothing_else(tmp_path: Path) -> None:
    def digest(name: str, **changes: Any) -> str:
        folder = save_adapter(tmp_path / name, CONFIG, **changes)
        return read_adapter(tmp_path, folder, CONFIG).digest

    first = digest("a")
    assert digest("b", lora_dropout=0.5) == first
    assert digest("c", seed=1) != first
    assert digest("d", alpha=4.0) != first
    assert digest("e", use_rslora=True) != first
    assert len(first) == 32


@pytest.mark.parametrize(
    ("name", "shape", "named"),
    [
        ("base_model.model.lm_head.lora_A.weight", (8, 96), "lm_head"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", (8, 61), "lora_embedding_A"),
        ("base_model.model.model.layers.2.mlp.up_proj.lora_A.weight", (8, 96), "layers.2"),
        (
            "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector",
            (96,),
            "lora_magnitude_vector",
        ),
        ("base_model.model.model.layers.0.mlp.up_proj.lora_B.bias", (96,), "lora_B.bias"),
        ("model.layers.0.mlp.up_proj.lora_A.weight", (8, 96), "is not supported"),
    ],
)
def test_a_tensor_without_a_place_is_refused_by_name(
    name: str, shape: tuple[int, ...], named: str, tmp_path: Path
) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    tensors = {**random_tensors(CONFIG, rank=8, seed=0), name: torch.zeros(shape)}
    save_file(tensors, folder / "adapter_model.safetensors")
    assert named in refused(tmp_path, folder)


def test_a_tensor_of_another_shape_and_half_a_pair_are_refused(tmp_path: Path) -> None:
    folder, good = save_adapter(tmp_path / "a", CONFIG), random_tensors(CONFIG, rank=8, seed=0)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    save_file({**good, name: torch.zeros(8, 95)}, folder / "adapter_model.safetensors")
    assert "(8, 95); needed: (8, 96)" in refused(tmp_path, folder)
    del good[name]
    save_file(good, folder / "adapter_model.safetensors")
    assert f"{name} is missing" in refused(tmp_path, folder)


def test_targets_and_tensors_have_to_agree(tmp_path: Path) -> None:
    fewer = save_adapter(tmp_path / "a", CONFIG, target_modules=["q_proj"])
    assert "which target_modules does not name" in refused(tmp_path, fewer)
    more = save_adapter(tmp_path / "b", CONFIG, targets=("q_proj",), target_modules=["q_proj", "x"])
    assert "target_modules names 'x'" in refused(tmp_path, more)
    anything = save_adapter(tmp_path / "c", CONFIG, target_modules="all-linear")
    assert read_adapter(tmp_path, anything, CONFIG).modules


def test_experts_and_latent_attention_are_refused_by_name() -> None:
    routed = MixtureConfig(num_experts=4, num_experts_per_token=2, expert_size=32)
    mixture = replace(CONFIG, mixture=routed)
    assert all("mlp" not in module for module in adapter_targets(mixture))
    latent = replace(
        CONFIG,
        num_kv_heads=6,
        latent=LatentConfig(query_rank=None, kv_rank=16, nope_dim=16, rope_dim=16, value_dim=16),
    )
    assert all("self_attn" not in module for module in adapter_targets(latent))


def test_only_plain_safetensors_under_the_root_are_opened(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    save_adapter(root / "good", CONFIG)
    outside = save_adapter(elsewhere / "bad", CONFIG)
    os.symlink(outside, root / "link")
    for asked in ("../elsewhere/bad", str(outside), "link", "..", ".", "nothing", "a\0b"):
        with pytest.raises(AdapterRefused):
            adapter_folder(root, asked)
    assert adapter_folder(root, "good") == adapter_folder(root, str(root / "good"))
    swapped = save_adapter(root / "swapped", CONFIG)
    (swapped / "adapter_model.safetensors").unlink()
    os.symlink(outside / "adapter_model.safetensors", swapped / "adapter_model.safetensors")
    assert "leads out of the folder" in refused(root, swapped)
    pickled = save_adapter(root / "pickled", CONFIG)
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    assert "only adapter_model.safetensors is opened" in refused(root, pickled)


@pytest.mark.parametrize("cut", [4, 100, -4])
def test_a_damaged_file_is_refused(cut: int, tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:cut])
    refused(tmp_path, folder)


def test_of_a_file_that_is_read_a_chunk_is_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, hidden_size=1024, intermediate_size=1024)
    folder = save_adapter(tmp_path / "a", config, rank=64)
    size = (folder / "adapter_model.safetensors").stat().st_size
    whole = read_adapter(tmp_path, folder, config)
    for module in (plain_file, tensor_file):
        monkeypatch.setattr(module, "CHUNK_BYTES", 1 << 16)
    tracemalloc.start()
    try:
        assert read_adapter(tmp_path, folder, config) == whole
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < size / 8


def test_a_digest_is_of_all_bytes_of_the_file_behind_the_settings(tmp_path: Path) -> None:
    """So that workers of other versions of the program know the adapter by the same one."""
    files = read_adapter(tmp_path, save_adapter(tmp_path / "a", CONFIG), CONFIG)
    told = files.settings.canonical
    weights = (tmp_path / "a" / "adapter_model.safetensors").read_bytes()
    expected = hashlib.sha256(len(told).to_bytes(8, "little") + told + weights).hexdigest()
    assert files.digest == expected[: len(files.digest)]


@pytest.mark.parametrize("change", ["a gap", "too long", "too short", "twice", "more behind"])
def test_tensors_that_do_not_follow_each_other_to_the_end_of_the_file_are_refused(
    change: str, tmp_path: Path
) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    path = folder / "adapter_model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    first, second = sorted(entry["data_offsets"] for entry in header.values())[:2]
    spans = {
        "a gap": (second, 0, 4),
        "too long": (second, 1, 4),
        "too short": (first, 1, -4),
        "twice": (second, 0, first[0] - second[0]),
    }
    if change == "more behind":
        data += b"more"
    else:
        span, at, by = spans[change]
        span[at] += by
    changed = json.dumps(header).encode()
    path.write_bytes(len(changed).to_bytes(8, "little") + changed + data)
    assert "truncated or damaged" in refused(tmp_path, folder)


@pytest.mark.parametrize("change", ["shorter", "longer"])
def test_a_file_that_changes_its_size_while_it_is_read_may_be_read_another_time(
    change: str, tmp_path: Path
) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    path = folder / "adapter_model.safetensors"
    size, chunks = path.stat().st_size, iter(range(1000))

    def progressed() -> None:
        if next(chunks) == 4:  # settings, length and header, the first rows
            os.truncate(path, size + (7 if change == "longer" else -7))

    said = "has become shorter" if change == "shorter" else "grows while it is read"
    with pytest.raises(AdapterUnread, match=f"a/adapter_model.safetensors {said}"):
        read_adapter(tmp_path, folder, CONFIG, progressed=progressed)


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"r": 8}', b"[" * 100_000])
def test_damaged_settings_are_refused(raw: bytes, tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    (folder / "adapter_config.json").write_bytes(raw)
    refused(tmp_path, folder)


def test_a_file_that_is_larger_than_any_adapter_is_not_read(tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    with (folder / "adapter_model.safetensors").open("r+b") as file:
        file.truncate(1 << 40)
    assert "allowed" in refused(tmp_path, folder)


def test_a_header_that_would_take_long_to_parse_is_refused(tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    header = b"{" + b" " * MAX_HEADER_BYTES + b"}"
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(len(header).to_bytes(8, "little") + header)
    assert "truncated or damaged" in refused(tmp_path, folder)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EACCES])
def test_storage_that_fails_is_told_from_files_that_are_wrong(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    for called in ("resolve", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, called, fails)
            with pytest.raises(AdapterUnread, match=re.escape(os.strerror(number))):
                read_adapter(tmp_path, folder, CONFIG)
    with pytest.raises(AdapterUnread, match="the folder of adapters cannot be read now"):
        adapter_folder(tmp_path / "unmounted", "a")


def test_ranks_together_hold_little_more_than_one_device() -> None:
    whole = values_per_lora_rank(ModelSplit(config=CONFIG))
    parts = [values_per_lora_rank(ModelSplit(config=CONFIG, rank=Rank(at, 2))) for at in range(2)]
    assert whole < sum(parts) < 2 * whole
