"""Which model guesses for a worker's: one with its tokens, where tokens are decoded."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError, PairingMismatch
from cluster.identity import Role, WorkerKey
from cluster.models import drafter_source
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.pairing import check_pairing
from cluster.wire import pairing_from_wire, pairing_to_wire
from engine.contract.head_in_blocks import head_in_blocks
from engine.contract.spec import EngineSpec
from tests.engine.model.tiny_eagle import eagle_config, random_tensors, saved_heads
from tests.engine.model.tiny_llama import random_model, tiny_config
from tests.worker.worker_bench import options_for
from worker import drafter_card
from worker.drafter_card import find_drafter
from worker.engine.scripted_link import scripted_ready
from worker.start import facts_of, pairing_of, spec_of

WORDS = ["zero", "one", "two", "three"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with a tokenizer of four words."""
    return model_in(tmp_path / "target", WORDS)


def model_in(folder: Path, words: list[str]) -> Path:
    random_model(tiny_config()).save_pretrained(folder)
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": words[0]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def found(speculation: str, target: Path, role: Role = Role.DECODE) -> ModelCard | HeadsCard | None:
    options = options_for(role, engine=EngineOptions(speculation=speculation))
    return asyncio.run(find_drafter(options, ModelStore().resolve(str(target))))


@pytest.mark.parametrize("word", ["auto", "off", "ngram", "heads"])
def test_a_word_is_no_model(word: str, folder: Path) -> None:
    assert found(word, folder) is None


def test_a_model_with_the_same_tokens_guesses_where_tokens_are_decoded(
    folder: Path, tmp_path: Path
) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(folder, draft)
    card = found(str(draft), folder)
    assert card is not None
    assert card.name == "draft"
    assert found(str(draft), folder, Role.PREFILL) is None


@pytest.mark.parametrize("source", ["smollm2", "folder"])
def test_where_nobody_decodes_a_whole_model_is_neither_fetched_nor_digested(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*_: Any) -> Any:
        raise AssertionError("the weights would be fetched, or read")

    monkeypatch.setattr(drafter_card, "find_text_card", fetched)
    monkeypatch.setattr(drafter_source, "find_card", fetched)
    speculation = str(folder) if source == "folder" else source
    assert found(speculation, folder, Role.PREFILL) is None


def test_tokens_are_compared_and_not_the_files_they_are_in(folder: Path, tmp_path: Path) -> None:
    """A chat template says nothing of what a token is."""
    draft = tmp_path / "draft"
    shutil.copytree(folder, draft)
    (draft / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    card = found(str(draft), folder)
    assert isinstance(card, ModelCard)
    assert card.tokenizer_digest != ModelStore().resolve(str(folder)).tokenizer_digest


@pytest.mark.parametrize("words", [WORDS[::-1], [*WORDS, "four"], WORDS[:-1]])
def test_a_model_with_other_tokens_is_refused_by_name(
    words: list[str], folder: Path, tmp_path: Path
) -> None:
    draft = model_in(tmp_path / "other", words)
    with pytest.raises(ConfigError, match="speculation by other .* not those of target") as caught:
        found(str(draft), folder)
    assert caught.value.param == "speculation"


@pytest.mark.parametrize(
    ("speculation", "words"),
    [
        ("no-such-model", "none of auto, off, ngram, heads, and no model: .*no-such-model"),
        ("", "speculation is empty"),
    ],
)
def test_what_is_neither_a_word_nor_a_model_is_refused(
    speculation: str, words: str, folder: Path
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        found(speculation, folder)
    assert caught.value.param == "speculation"


def test_a_checkpoint_of_a_head_guesses_where_tokens_are_decoded(
    folder: Path, tmp_path: Path
) -> None:
    """It needs no tokenizer: its tokens are the target's."""
    config = eagle_config(tiny_config())
    eagle = saved_heads(random_tensors(config), config, tmp_path / "eagle")
    card = found(str(eagle), folder)
    assert isinstance(card, HeadsCard)
    assert card.name == "eagle"
    assert card.architecture == "LlamaForCausalLMEagle3"
    assert found(str(eagle), folder, Role.PREFILL) == card  # whose KV may be in its blocks


def test_the_engine_is_told_of_a_head(folder: Path, tmp_path: Path) -> None:
    config = eagle_config(tiny_config())
    eagle = saved_heads(random_tensors(config), config, tmp_path / "eagle")
    options = options_for(Role.DECODE, engine=EngineOptions(speculation=str(eagle)))
    target = ModelStore().resolve(str(folder))
    spec = spec_of(options, target, WorkerKey("w", "once"), found(str(eagle), folder))
    assert spec.draft is None
    assert spec.heads is not None
    assert spec.heads.card is not None
    assert spec.heads.card.source == str(eagle)
    assert EngineSpec.unpack(spec.pack()) == spec


@pytest.mark.parametrize("role", [Role.DECODE, Role.PREFILL])
def test_the_engine_is_told_to_guess_by_the_models_own_layers_where_tokens_are_decoded(
    role: Role, folder: Path
) -> None:
    options = options_for(role, engine=EngineOptions(speculation="heads"))
    spec = spec_of(options, ModelStore().resolve(str(folder)), WorkerKey("w", "once"))
    assert (spec.heads is not None) is (role is Role.DECODE)
    assert spec.heads is None or spec.heads.card is None


SHAPE = {"num_attention_heads": 6, "num_key_value_heads": 2}
"""Of the keys and values, as the model's."""


def head_of(folder: Path, **changes: Any) -> str:
    """The source of a head of this shape."""
    config = eagle_config(tiny_config(), **changes)
    return str(saved_heads(random_tensors(config), config, folder))


def spec_with(speculation: str, target: Path, role: Role, **options: Any) -> EngineSpec:
    engine = EngineOptions(speculation=speculation, **options)
    card = ModelStore().resolve(str(target))
    key, draft = WorkerKey("w", "once"), found(speculation, target, role)
    return spec_of(options_for(role, engine=engine), card, key, draft)


@pytest.mark.parametrize("ranks", [(1, 1), (2, 2), (1, 2), (2, 1)], ids=str)
def test_a_prefill_worker_has_the_head_whose_kv_is_in_its_blocks_and_pairs_by_it(
    ranks: tuple[int, int], folder: Path, tmp_path: Path
) -> None:
    """Whatever the sizes of both groups are."""
    size = dict(zip((Role.PREFILL, Role.DECODE), ranks, strict=True))
    head = head_of(tmp_path / "eagle", **SHAPE)
    other = head_of(tmp_path / "other", **SHAPE, rms_norm_eps=1e-3)
    ready = scripted_ready()
    specs = {role: spec_with(head, folder, role, tensor_parallel_size=size[role]) for role in size}
    pairings = {role: pairing_of(spec, ready) for role, spec in specs.items()}
    assert pairings[Role.PREFILL] == pairings[Role.DECODE]
    plain, strange = (
        pairing_of(spec_with(said, folder, Role.PREFILL, tensor_parallel_size=ranks[0]), ready)
        for said in ("auto", other)
    )
    assert pairings[Role.DECODE].num_layers == plain.num_layers + specs_layers(specs[Role.DECODE])
    for theirs in (plain, strange):
        with pytest.raises(PairingMismatch, match="the same speculation"):
            check_pairing(pairings[Role.DECODE], theirs, peer="p1")
    assert pairing_from_wire(pairing_to_wire(strange)) == strange
    for role, spec in specs.items():
        words = facts_of(spec, ready, metrics_port=0)["speculation"]
        assert role and "eagle (head " in words and "handed over with its blocks" in words


def specs_layers(spec: EngineSpec) -> int:
    room = head_in_blocks(spec)
    assert room is not None
    return room.num_layers


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_head_that_blocks_have_no_room_for_is_no_matter_of_pairing(
    num_ranks: int, folder: Path, tmp_path: Path
) -> None:
    head = head_of(tmp_path / "eagle", num_key_value_heads=1)
    options: dict[str, Any] = {"tensor_parallel_size": num_ranks}
    prefill = spec_with(head, folder, Role.PREFILL, **options)
    decode = spec_with(head, folder, Role.DECODE, **options)
    plain = pairing_of(spec_with("auto", folder, Role.PREFILL, **options), scripted_ready())
    assert prefill.heads is None and decode.heads is not None
    assert pairing_of(prefill, scripted_ready()) == pairing_of(decode, scripted_ready()) == plain
    assert "not handed over" in facts_of(decode, scripted_ready(), metrics_port=0)["speculation"]
