"""What a folder says of pooling, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.common_options import ModelOptions
from cluster.errors import BadCheckpoint, ConfigError, ModelError, UnsupportedModel
from cluster.models.files.weights_digest import DigestCache
from cluster.models.hf.card import card_of_folder
from cluster.models.hf.pooling import pooling_of_folder
from cluster.models.pooling import Pooling, PoolingKind, resolve_pooling
from cluster.models.text.pooling import pooling_of_model
from tests.cluster.models.conftest import TinyFolder

NAMES = ("Transformer", "Pooling", "Normalize")


def modules(*names: str, package: str = "sentence_transformers.models") -> list[dict[str, Any]]:
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    return [{"type": f"{package}.{name}", "path": paths.get(name, name)} for name in names]


def write(folder: Path, modules: object, pooling: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {}))
    return folder


def read(folder: Path, architecture: str = "Qwen3ForCausalLM", **config: Any) -> Pooling | None:
    return pooling_of_folder(folder, config, architecture)


@pytest.mark.parametrize(
    ("stated", "kind"),
    [
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, PoolingKind.LAST),
        ({"pooling_mode_mean_tokens": True}, PoolingKind.MEAN),
        ({"pooling_mode": "lasttoken"}, PoolingKind.LAST),
        ({"pooling_mode": ["mean"], "embedding_dimension": 64}, PoolingKind.MEAN),
    ],
)
def test_old_and_new_words_of_sentence_transformers_are_read(
    tmp_path: Path, stated: dict[str, Any], kind: PoolingKind
) -> None:
    assert read(write(tmp_path, modules(*NAMES), stated)) == Pooling(kind=kind)


def test_without_its_module_nothing_is_normalized(tmp_path: Path) -> None:
    found = read(write(tmp_path, modules(*NAMES[:2]), {"pooling_mode": "mean"}))
    assert found == Pooling(kind=PoolingKind.MEAN, normalizes=False)


def test_moved_classes_are_known_by_their_own_names(tmp_path: Path) -> None:
    moved = modules(*NAMES, package="sentence_transformers.sentence_transformer.modules.x")
    assert read(write(tmp_path, moved, {"pooling_mode": "mean"})) is not None


@pytest.mark.parametrize(
    ("config", "dimensions"),
    [({}, None), ({"is_matryoshka": True}, ()), ({"matryoshka_dimensions": [64, 32]}, (64, 32))],
)
def test_what_an_embedding_may_be_cut_to_is_in_its_configuration(
    tmp_path: Path, config: dict[str, Any], dimensions: tuple[int, ...] | None
) -> None:
    found = read(write(tmp_path, modules(*NAMES), {"pooling_mode": "mean"}), **config)
    assert found is not None and found.dimensions == dimensions


@pytest.mark.parametrize(
    ("names", "stated", "config", "error", "words"),
    [
        (NAMES, {"pooling_mode_cls_token": True}, {}, UnsupportedModel, "pooling_mode_cls_token"),
        (NAMES, {"pooling_mode": "max"}, {}, UnsupportedModel, "pooling by max"),
        (NAMES, {"pooling_mode": ["mean", "lasttoken"]}, {}, UnsupportedModel, "mean and last"),
        (NAMES, {}, {}, UnsupportedModel, "pooling by nothing"),
        ((*NAMES, "Dense"), {"pooling_mode": "mean"}, {}, UnsupportedModel, "Dense"),
        ((*NAMES, "Pooling"), {"pooling_mode": "mean"}, {}, UnsupportedModel, "several poolings"),
        (NAMES, {"pooling_mode": "mean"}, {"is_causal": False}, UnsupportedModel, "directions"),
        (
            *(NAMES, {"pooling_mode": "mean"}, {"use_bidirectional_attention": True}),
            *(UnsupportedModel, "directions"),
        ),
        (NAMES, {"pooling_mode_mean_tokens": "yes"}, {}, BadCheckpoint, "pooling_mode_mean"),
    ],
)
def test_what_is_not_run_is_refused_by_name(
    tmp_path: Path,
    names: tuple[str, ...],
    stated: dict[str, Any],
    config: dict[str, Any],
    error: type[ModelError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        read(write(tmp_path, modules(*names), stated), **config)


@pytest.mark.parametrize("content", ['{"a": 1}', "[1]", "[" * 100_000, "no json", '[{"type": 3}]'])
def test_a_bad_list_of_modules_is_a_bad_checkpoint(tmp_path: Path, content: str) -> None:
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(BadCheckpoint):
        read(tmp_path)


def test_modules_lead_out_of_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    outside = modules("Transformer", "Normalize") + [{"type": "x.Pooling", "path": "../other"}]
    write(folder, outside)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"pooling_mode": "mean"}')
    with pytest.raises(BadCheckpoint, match="out of its folder"):
        read(folder)


def test_a_model_without_a_head_and_without_modules_is_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="Qwen3Model has no head for text"):
        read(tmp_path, "Qwen3Model")


def test_a_model_of_text_pools_nothing_by_itself(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    assert read(write(tmp_path, modules("Transformer", "LogitScore"))) is None


@pytest.mark.parametrize(
    ("config", "has_sigmoid"),
    [
        ({"id2label": {"0": "LABEL_0"}}, True),
        ({"num_labels": 1}, True),
        ({"num_labels": 1, "sbert_ce_default_activation_function": "torch.nn.Identity"}, False),
        (
            {
                "num_labels": 1,
                "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
            },
            False,
        ),
    ],
)
def test_one_label_is_a_score(tmp_path: Path, config: dict[str, Any], has_sigmoid: bool) -> None:
    found = read(tmp_path, "LlamaForSequenceClassification", **config)
    assert found == Pooling(kind=PoolingKind.CLASSIFIER, has_sigmoid=has_sigmoid)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "2 labels"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "3 labels"),
        ({"num_labels": 1, "sbert_ce_default_activation_function": "x.Tanh"}, "x.Tanh"),
    ],
)
def test_other_heads_are_refused_by_name(
    tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        read(tmp_path, "Qwen2ForSequenceClassification", **config)


def test_the_card_of_a_folder_has_it_and_asks_for_no_head(
    tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    tiny_folder.config |= {"architectures": ["LlamaModel"], "tie_word_embeddings": False}
    folder = tiny_folder.write()
    write(folder, modules(*NAMES), {"pooling_mode": "lasttoken"})
    digests = DigestCache(tmp_path / "digests")
    card = card_of_folder(folder, name="tiny", source="tiny", digests=digests)
    assert card.pooling == Pooling(kind=PoolingKind.LAST)
    assert card.config.tie_word_embeddings
    assert pooling_of_model(card, ModelOptions()) == card.pooling


def test_options_choose_for_models_of_text_alone() -> None:
    own = Pooling(kind=PoolingKind.LAST)
    assert resolve_pooling(None, "auto") is None
    assert resolve_pooling(None, "none") is None
    assert resolve_pooling(None, "mean") == Pooling(kind=PoolingKind.MEAN, generates=True)
    assert resolve_pooling(own, "auto") == resolve_pooling(own, "last") == own
    for asked in ("mean", "none", "yes-no"):
        with pytest.raises(ConfigError, match="made for last"):
            resolve_pooling(own, asked)


def test_an_operator_may_let_embeddings_be_cut() -> None:
    cut = resolve_pooling(None, "last", matryoshka=True)
    assert cut is not None and cut.dimensions == ()
    stated = resolve_pooling(
        Pooling(kind=PoolingKind.LAST, dimensions=(32,)), "auto", matryoshka=True
    )
    assert stated is not None and stated.dimensions == (32,)
    for own in (None, Pooling(kind=PoolingKind.CLASSIFIER)):
        with pytest.raises(ConfigError, match="--matryoshka"):
            resolve_pooling(own, "auto", matryoshka=True)


def test_yes_and_no_are_tokens_of_the_vocabulary(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    options = ModelOptions(pooling="yes-no")
    digests = DigestCache(tmp_path / "digests")
    folder = tiny_folder.write()
    card = card_of_folder(folder, name="tiny", source="tiny", digests=digests)
    with pytest.raises(ConfigError, match="no tokens yes and no"):
        pooling_of_model(card, options)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {"yes": len(vocabulary), "no": len(vocabulary) + 1}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    found = pooling_of_model(card, options)
    assert found is not None and found.answer_ids == (len(vocabulary) - 2, len(vocabulary) - 1)
