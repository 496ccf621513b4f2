"""A Hugging Face folder as a model card."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.errors import BadCheckpoint
from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.files.json_file import read_json_object, read_optional_json
from cluster.models.files.manifest import StatedFile
from cluster.models.files.weights_digest import DigestCache, digest_of_all
from cluster.models.hf.config import decoder_of_hf
from cluster.models.hf.folder import dtype_of_files, weight_files_of, weight_names_of
from cluster.models.hf.pooling import pooling_of_folder
from cluster.models.hf.quantization import label_of, quantization_of_hf
from cluster.models.hf.special_tokens import id_of_special_token

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
MORE_TEMPLATES = {"tool_use": "additional_chat_templates/tool_use.jinja"}
"""By name; most checkpoints have none."""


def card_of_folder(
    folder: Path,
    *,
    name: str,
    source: str,
    digests: DigestCache,
    stated: Mapping[str, StatedFile] | None = None,
) -> ModelCard:
    """config.json first: an unsupported model is refused before its weights are looked at.

    `stated`: the weights are not here, these are they by name."""
    values, where = read_json_object(folder / "config.json"), str(folder / "config.json")
    architecture, config = decoder_of_hf(values, where)
    pooling = pooling_of_folder(folder, values, architecture)
    if pooling is not None:  # its files need have no head for text, and nobody asks for one
        config = replace(config, tie_word_embeddings=True)
    quantization = quantization_of_hf(values, where)
    if not (folder / "tokenizer.json").is_file():
        raise BadCheckpoint(f"{folder} lacks tokenizer.json; slow tokenizers are not read")
    quantized = quantization is not None
    weights = (
        _weights_here(folder, digests, quantized=quantized)
        if stated is None
        else _stated_weights(folder, stated, digests)
    )
    return ModelCard(
        name=name,
        source=source,
        format=CheckpointFormat.SAFETENSORS,
        weight_files=weights.files,
        metadata_path=folder,
        architecture=architecture,
        config=config,
        checkpoint_dtype=weights.dtype if quantization is None else label_of(quantization),
        weights_digest=weights.digest,
        tokenizer_digest=_tokenizer_digest(folder),
        eos_token_ids=_eos_ids(folder, values, config.vocab_size),
        bos_token_id=_bos_id(folder, values, config.vocab_size),
        weight_bytes=weights.num_bytes,
        quantization=quantization,
        pooling=pooling,
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """Of a folder, with config.json in the digest."""

    files: tuple[Path, ...]
    dtype: str
    digest: str
    num_bytes: int


def _weights_here(folder: Path, digests: DigestCache, *, quantized: bool) -> _Weights:
    files = weight_files_of(folder)
    dtype = dtype_of_files(files, quantized=quantized)
    digest = digests.of((*files, folder / "config.json"))
    return _Weights(files, dtype, digest, sum(path.stat().st_size for path in files))


def _stated_weights(
    folder: Path, stated: Mapping[str, StatedFile], digests: DigestCache
) -> _Weights:
    names = weight_names_of(folder)
    missing = [name for name in names if name not in stated]
    if missing:
        raise BadCheckpoint(f"{folder} needs {missing[0]}, which its repository does not have")
    each = {name: stated[name].sha256 for name in names}
    each["config.json"] = digests.of_file(folder / "config.json")
    return _Weights((), "", digest_of_all(each), sum(stated[name].size_bytes for name in names))


def _tokenizer_digest(folder: Path) -> str:
    """Without MORE_TEMPLATES: what an older version has fetched lacks them, and of a fleet the
    router alone reads them."""
    digest = hashlib.sha256()
    for name in TOKENIZER_FILES:
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"{name}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _eos_ids(folder: Path, config: dict[str, Any], vocab_size: int) -> tuple[int, ...]:
    """Those of generation_config.json, else config.json's; and the tokenizer's own."""
    generation = read_optional_json(folder / "generation_config.json")
    stated = generation.get("eos_token_id")
    ids = _ids(config.get("eos_token_id") if stated is None else stated, folder, vocab_size)
    own = id_of_special_token(folder, "eos_token")
    return tuple(dict.fromkeys([*ids, *([] if own is None else [own])]))


def _bos_id(folder: Path, config: dict[str, Any], vocab_size: int) -> int | None:
    ids = _ids(config.get("bos_token_id"), folder, vocab_size)
    return ids[0] if ids else id_of_special_token(folder, "bos_token")


def _ids(value: Any, folder: Path, vocab_size: int) -> list[int]:
    """One id or a list of them."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise BadCheckpoint(
                f"{folder}: token id {token_id!r}; it must be 0 to {vocab_size - 1}"
            )
    return ids
