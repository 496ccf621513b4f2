"""How deep a client's JSON goes: looked at before anything goes down into it."""

from __future__ import annotations

from typing import Any

from cluster.errors import InvalidRequest


def check_depth(value: Any, where: str, max_depth: int) -> None:
    """Raises InvalidRequest naming `where`."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > max_depth:
            raise InvalidRequest(f"{where} is nested deeper than {max_depth}", param=where)
        level = [inner for each in level for inner in _inside(each)]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [each for each in value.values() if isinstance(each, dict | list)]
    return [each for each in value if isinstance(each, dict | list)] if type(value) is list else []
