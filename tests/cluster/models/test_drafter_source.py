"""What of `--speculation` is seen before any process starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.drafter_source import check_drafter, local_drafter_source
from cluster.speculation import wish_of
from tests.engine.model.tiny_eagle import eagle_config, random_tensors, saved_heads
from tests.engine.model.tiny_llama import tiny_config
from tests.worker.test_drafter_card import WORDS, model_in


@pytest.fixture
def target(tmp_path: Path) -> ModelCard:
    return ModelStore().resolve(str(model_in(tmp_path / "target", WORDS)))


@pytest.mark.parametrize("said", ["auto", "off", "ngram", "heads", "smollm2", "hf://me/not-there"])
def test_words_and_what_is_fetched_later_are_no_matter_of_this_machine(said: str) -> None:
    assert local_drafter_source(wish_of(said)) is None


@pytest.mark.parametrize("said", ["/no/such/model", "ngrams", "hf://one-part", ""])
def test_what_is_neither_a_word_nor_a_source_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match="speculation is ") as caught:
        local_drafter_source(wish_of(said))
    assert caught.value.param == "speculation"


def test_models_and_heads_that_can_guess_are_let_be(target: ModelCard, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(tmp_path / "target", draft)
    config = eagle_config(tiny_config())
    eagle = saved_heads(random_tensors(config), config, tmp_path / "eagle")
    for folder in (draft, eagle):
        assert local_drafter_source(wish_of(str(folder))) == str(folder)
        check_drafter(str(folder), target)


def test_a_folder_that_cannot_guess_for_the_model_is_refused(
    target: ModelCard, tmp_path: Path
) -> None:
    other = model_in(tmp_path / "other", [*WORDS, "four"])
    (tmp_path / "empty").mkdir()
    for folder, why in ((other, "not those of target"), (tmp_path / "empty", "config.json")):
        with pytest.raises(ConfigError, match=f"cannot be had: .*{why}") as caught:
            check_drafter(str(folder), target)
        assert caught.value.param == "speculation"
