"""What a Hugging Face folder says of pooling: its architecture, and the files of
sentence-transformers (modules.json, the folder of its Pooling).

    Qwen3ForCausalLM + modules.json     an embedding
    Qwen3Model, the same                an embedding; the files have no head for text
    Qwen3ForSequenceClassification      a score
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.fields import Fields
from cluster.models.files.json_file import read_json_object
from cluster.models.pooling import Pooling, PoolingKind

MODULES: Final = "modules.json"
MAX_MODULES_BYTES = 64 * 1024
HEADLESS, SCORING = "Model", "ForSequenceClassification"
"""Ends of architectures without a head for text."""
_KINDS = {"lasttoken": PoolingKind.LAST, "mean": PoolingKind.MEAN}
_MODES = {"pooling_mode_lasttoken": "lasttoken", "pooling_mode_mean_tokens": "mean"}
_SIGMOID, _IDENTITY = "Sigmoid", "Identity"


def causal_name(architecture: str) -> str:
    """Of the family's model that makes text: its configuration is the same."""
    for end in (SCORING, HEADLESS):
        if architecture.endswith(end):
            return architecture.removesuffix(end) + "ForCausalLM"
    return architecture


def pooling_of_folder(folder: Path, values: dict[str, Any], architecture: str) -> Pooling | None:
    """`values`: of config.json. None: the model makes text.

    Raises UnsupportedModel by name for what is not run, BadCheckpoint for bad files.
    """
    fields = Fields(values, str(folder / "config.json"))
    if architecture.endswith(SCORING):
        return _scoring(fields)
    modules = _modules(folder)
    if any(_is(module, "LogitScore") for module in modules):
        return None  # a model of text, by its own head: --pooling yes-no
    if any(_is(module, "Pooling") for module in modules):
        return _embedding(folder, modules, fields)
    if architecture.endswith(HEADLESS):
        raise UnsupportedModel(
            f"{fields.where}: {architecture} has no head for text, and no {MODULES} says how its "
            "hidden states are pooled"
        )
    return None


def _scoring(fields: Fields) -> Pooling:
    _check_causal(fields)
    labels = fields.raw("id2label")
    num_labels = len(labels) if isinstance(labels, dict) else fields.integer("num_labels", 2)
    if num_labels != 1:
        raise UnsupportedModel(
            f"{fields.where}: a classification head of {num_labels} labels; one, a score, is run"
        )
    stated = fields.section("sentence_transformers").text("activation_fn", "")
    stated = stated or fields.text("sbert_ce_default_activation_function", "") or _SIGMOID
    name = stated.rpartition(".")[2]
    if name not in (_SIGMOID, _IDENTITY):
        raise UnsupportedModel(f"{fields.where}: scores go through {stated[:80]}, which is not run")
    return Pooling(kind=PoolingKind.CLASSIFIER, has_sigmoid=name == _SIGMOID)


def _embedding(folder: Path, modules: list[Fields], fields: Fields) -> Pooling:
    _check_causal(fields)
    known = ("Transformer", "Pooling", "Normalize")
    strange = [module.text("type", "") for module in modules if not _is(module, *known)]
    if strange:
        raise UnsupportedModel(f"{folder / MODULES}: {strange[0][:80]} is not run")
    (pooling, *more) = (module for module in modules if _is(module, "Pooling"))
    if more:
        raise UnsupportedModel(f"{folder / MODULES} has several poolings; one is run")
    return Pooling(
        kind=_kind(folder, pooling),
        normalizes=any(_is(module, "Normalize") for module in modules),
        dimensions=_dimensions(fields),
    )


def _kind(folder: Path, module: Fields) -> PoolingKind:
    path = folder / module.text("path") / "config.json"
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadCheckpoint(f"{folder / MODULES} points out of its folder; download it again")
    values, where = read_json_object(path), str(path)
    modes = list(_modes(Fields(values, where)))
    if len(modes) != 1 or modes[0] not in _KINDS:
        raise UnsupportedModel(
            f"{where}: pooling by {' and '.join(modes) or 'nothing'}; of a decoder lasttoken or "
            "mean is run"
        )
    return _KINDS[modes[0]]


def _modes(fields: Fields) -> Iterator[str]:
    """In words of sentence-transformers 5, or the flags of those before."""
    stated = fields.raw("pooling_mode")
    if stated is not None:
        yield from [stated] if isinstance(stated, str) else fields.texts("pooling_mode")
        return
    for name in fields.names():
        if name.startswith("pooling_mode_") and fields.flag(name, False):
            yield _MODES.get(name, name)


def _dimensions(fields: Fields) -> tuple[int, ...] | None:
    sizes = fields.integers("matryoshka_dimensions")
    if sizes:
        return tuple(sizes)
    return () if fields.flag("is_matryoshka", False) else None


def _check_causal(fields: Fields) -> None:
    """Raises UnsupportedModel for a decoder whose tokens see those that follow."""
    sees_ahead = fields.flag("use_bidirectional_attention", False)
    if sees_ahead or not fields.flag("is_causal", True):
        raise UnsupportedModel(f"{fields.where}: attention in both directions is not run")


def _modules(folder: Path) -> list[Fields]:
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        with path.open("rb") as file:
            modules = json.loads(file.read(MAX_MODULES_BYTES))
    except (ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{path} is not JSON ({error}); download it again") from None
    if not isinstance(modules, list) or not all(isinstance(item, dict) for item in modules):
        raise BadCheckpoint(f"{path} is no list of modules; download it again")
    return [Fields(module, str(path)) for module in modules]


def _is(module: Fields, *names: str) -> bool:
    """By the class alone: its modules have moved between versions."""
    return module.text("type", "").rpartition(".")[2] in names
