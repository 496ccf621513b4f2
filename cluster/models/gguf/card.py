"""A .gguf file as a model card."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from cluster.errors import BadCheckpoint
from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.fields import Fields
from cluster.models.files.weights_digest import DigestCache
from cluster.models.gguf.config import decoder_of_gguf, dtype_of_gguf
from cluster.models.gguf.header import GgufHeader, read_gguf_header
from cluster.models.gguf.quantization import loaded_bytes_of, quantization_of_gguf
from cluster.models.gguf.tokenizer import require_buildable

_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def card_of_gguf(path: Path, *, name: str, source: str, digests: DigestCache) -> ModelCard:
    """Metadata first: an unsupported model is refused before its weights are hashed."""
    header = read_gguf_header(path)
    architecture, config = decoder_of_gguf(header)
    require_buildable(header)
    return ModelCard(
        name=name,
        source=source,
        format=CheckpointFormat.GGUF,
        weight_files=(path,),
        metadata_path=path,
        architecture=architecture,
        config=config,
        checkpoint_dtype=dtype_of_gguf(header),
        weights_digest=digests.of((path,)),
        tokenizer_digest=tokenizer_digest_of_gguf(header),
        eos_token_ids=_eos_ids(header, config.vocab_size),
        bos_token_id=_token_id(header, "bos_token_id", config.vocab_size),
        weight_bytes=path.stat().st_size,
        loaded_bytes=loaded_bytes_of(header),
        quantization=quantization_of_gguf(header),
    )


def tokenizer_digest_of_gguf(header: GgufHeader) -> str:
    """Over every tokenizer.* value, the chat template among them."""
    values = {key: header.metadata[key] for key in header.metadata if key.startswith("tokenizer.")}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _eos_ids(header: GgufHeader, vocab_size: int) -> tuple[int, ...]:
    ids = [_token_id(header, key, vocab_size) for key in _EOS_KEYS]
    return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))


def _token_id(header: GgufHeader, key: str, vocab_size: int) -> int | None:
    fields = Fields(header.metadata, str(header.path))
    full = f"tokenizer.ggml.{key}"
    if full not in fields:
        return None
    token_id = fields.integer(full)
    if not 0 <= token_id < vocab_size:
        raise BadCheckpoint(f"{header.path}: {full} is {token_id}; the vocabulary has {vocab_size}")
    return token_id
