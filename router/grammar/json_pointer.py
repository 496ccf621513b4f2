"""Pointers within a schema, as a `$ref` has them (RFC 6901, in the form of a fragment)."""

from __future__ import annotations

from typing import Any


def named_by(pointer: str, root: Any) -> Any:
    """What #/a/b names in `root`; None for other forms, and where nothing is there."""
    if not pointer.startswith("#/"):
        return None
    found = root
    for part in pointer[2:].split("/"):
        word = part.replace("~1", "/").replace("~0", "~")
        found = found.get(word) if isinstance(found, dict) else None
    return found
