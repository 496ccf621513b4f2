"""Texts that constants of a schema are compared by: equal for those that JSON schema takes for
equal (1 and 1.0 are, 1 and true are not), and for no others.

Constants may be large, and values of Python may be made to have one hash: each is written once, and
equal texts are one object, so that a comparison is one step, however large they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_DEPTH = 8
"""Of lists and objects in each other: what lies deeper counts as equal, which excludes less."""
STEPS_A_CONTAINER = 3
"""The time of a list or an object, whatever is in it."""


class ConstantKeys:
    """Of the constants in one schema, as it was read from JSON."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        """`spend`: called with a number of steps before they are done."""
        self._spend = spend
        self._known: dict[str, str] = {}

    def key(self, value: Any) -> str:
        """The steps of what is in the value are taken, that of itself is its caller's."""
        write = _PLAIN.get(type(value))
        text = self._nested(value) if write is None else write(value)
        return self._known.setdefault(text, text)

    def _nested(self, value: Any) -> str:
        parts = list[str]()
        self._write(value, parts, 0)
        return "".join(parts)

    def _write(self, value: Any, parts: list[str], depth: int) -> None:
        """No text begins another one, so that several in a row tell where each ends."""
        if depth > MAX_DEPTH:
            parts.append("?")
        elif (write := _PLAIN.get(type(value))) is not None:
            parts.append(write(value))
        elif isinstance(value, dict):
            self._spend(STEPS_A_CONTAINER + 2 * len(value))
            parts.append("{")
            for name in sorted(value):
                parts.append(_text(name))
                self._write(value[name], parts, depth + 1)
            parts.append("}")
        else:
            self._spend(STEPS_A_CONTAINER + len(value))
            parts.append("[")
            for each in value:
                self._write(each, parts, depth + 1)
            parts.append("]")


def _text(value: str) -> str:
    return f"s{len(value)}:{value}"


def _whole(value: int) -> str:
    return f"n{value:x};"  # in decimals a long one takes the square of its length


def _number(value: float) -> str:
    return _whole(int(value)) if value.is_integer() else f"{value!r};"


_PLAIN: dict[type, Callable[[Any], str]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: "{!r};".format,
    type(None): "{!r};".format,
}
"""By what JSON is read as, but for lists and objects."""
