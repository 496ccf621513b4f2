"""How deep a client's JSON goes: looked at before anything goes down into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster.errors import InvalidRequest

TOO_DEEP = "the request is nested too deeply; flatten it"


@contextmanager
def refusing_depth() -> Iterator[None]:
    """What went down too deep in spite of all is the client's to change. Raises InvalidRequest."""
    try:
        yield
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None


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
