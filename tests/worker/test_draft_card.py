"""Which model guesses for a worker's: one with its tokens, where tokens are decoded."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError, UnsupportedModel
from cluster.identity import Role
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from tests.engine.model.tiny_llama import random_model, tiny_config
from tests.worker.worker_bench import options_for
from worker.draft_card import find_draft

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


def found(speculation: str, target: Path, role: Role = Role.DECODE) -> ModelCard | None:
    options = options_for(role, engine=EngineOptions(speculation=speculation))
    return asyncio.run(find_draft(options, ModelStore().resolve(str(target))))


@pytest.mark.parametrize("word", ["auto", "off", "ngram"])
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
    assert card is not None
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
        ("no-such-model", "none of auto, off, ngram, and no model: .*no-such-model"),
        ("", "speculation is empty"),
        ("heads", "speculation is heads: .* not computed yet"),
    ],
)
def test_what_is_neither_a_word_nor_a_model_is_refused(
    speculation: str, words: str, folder: Path
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        found(speculation, folder)
    assert caught.value.param == "speculation"


def test_a_checkpoint_of_heads_is_refused_by_its_architecture(folder: Path, tmp_path: Path) -> None:
    draft = tmp_path / "eagle"
    shutil.copytree(folder, draft)
    config = json.loads((draft / "config.json").read_text())
    config["architectures"] = ["LlamaForCausalLMEagle3"]
    (draft / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLMEagle3"):
        found(str(draft), folder)
