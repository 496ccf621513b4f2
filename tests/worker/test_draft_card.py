"""Which model guesses for a worker's: one with its tokens, where tokens are decoded."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.identity import Role, WorkerKey
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from engine.contract.spec import EngineSpec
from tests.engine.model.tiny_eagle import eagle_config, random_tensors, saved_heads
from tests.engine.model.tiny_llama import random_model, tiny_config
from tests.worker.worker_bench import options_for
from worker.draft_card import find_draft
from worker.start import spec_of

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
    return asyncio.run(find_draft(options, ModelStore().resolve(str(target))))


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
    assert found(str(eagle), folder, Role.PREFILL) is None


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
