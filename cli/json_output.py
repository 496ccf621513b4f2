"""Data for programs: one document on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


def print_json(data: Any) -> None:
    """Indented; paths become text."""
    print(as_json(data))


def print_data(data: Any, form: str) -> bool:
    """As JSON or YAML; False, and nothing, where the form is for people."""
    if form not in ("json", "yaml"):
        return False
    print(as_json(data) if form == "json" else as_yaml(data))
    return True


def as_json(data: Any) -> str:
    """Indented; paths become text."""
    encoded = msgspec.json.encode(data, enc_hook=_encode)
    return msgspec.json.format(encoded, indent=2).decode()


def as_json_line(data: Any) -> str:
    """One document in one line."""
    return msgspec.json.encode(data, enc_hook=_encode).decode()


def as_yaml(data: Any) -> str:
    """The same fields in the same order; begins a document of its own."""
    import yaml  # 20 ms, of use here alone

    plain = msgspec.to_builtins(data, enc_hook=_encode)
    return "---\n" + str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)).rstrip()


def _encode(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value)} in JSON")
