"""The special tokens that a Hugging Face folder names in tokenizer_config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster.models.files.json_file import MAX_TOKENIZER_BYTES, read_json_object, read_optional_json

NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def special_tokens_of(folder: Path) -> dict[str, str]:
    """Name -> text, for those that are set. A value may be a string or an AddedToken's object."""
    config = read_optional_json(folder / "tokenizer_config.json")
    texts = {name: _text(config.get(name)) for name in NAMES}
    return {name: text for name, text in texts.items() if text is not None}


def id_of_special_token(folder: Path, name: str) -> int | None:
    """Looked up among tokenizer.json's added tokens and vocabulary; None when there is none."""
    text = special_tokens_of(folder).get(name)
    if text is None:
        return None
    tokenizer = read_json_object(folder / "tokenizer.json", max_bytes=MAX_TOKENIZER_BYTES)
    for token in tokenizer.get("added_tokens") or []:
        if isinstance(token, dict) and token.get("content") == text:
            return _id(token.get("id"))
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    return _id(vocab.get(text)) if isinstance(vocab, dict) else None


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _id(value: Any) -> int | None:
    return value if type(value) is int else None
