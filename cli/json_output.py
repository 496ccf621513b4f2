"""Data for programs: one JSON document on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


def print_json(data: Any) -> None:
    """Indented; paths become text."""
    encoded = msgspec.json.encode(data, enc_hook=_encode)
    print(msgspec.json.format(encoded, indent=2).decode())


def _encode(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value)} in JSON")
