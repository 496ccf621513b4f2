"""Reads the JSON files of a checkpoint. They are not trusted: size and depth are limited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster.errors import BadCheckpoint

MAX_CONFIG_BYTES = 16 << 20
MAX_TOKENIZER_BYTES = 256 << 20


def read_json_object(path: Path, *, max_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Raises BadCheckpoint when the file is missing, too large, too deep or not an object."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise BadCheckpoint(f"{path} has {size:,} bytes; allowed: {max_bytes:,}")
        return parse_json_object(path.read_bytes(), str(path))
    except OSError as error:
        raise BadCheckpoint(f"cannot read {path}: {error.strerror}") from error


def read_optional_json(path: Path) -> dict[str, Any]:
    """As read_json_object; an empty mapping when there is no such file."""
    return read_json_object(path) if path.is_file() else {}


def parse_json_object(raw: bytes, where: str) -> dict[str, Any]:
    """Raises BadCheckpoint with `where` for anything but a JSON object."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{where} is not valid JSON: {error}; fetch it again") from error
    if not isinstance(value, dict):
        raise BadCheckpoint(f"{where} holds a {type(value).__name__}; it must be an object")
    return value
