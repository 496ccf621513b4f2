"""Values that are no texts, written as texts by a template.

The size of a list does not tell how long a text it makes: `repr` doubles backslashes, and what is
in it twice is written twice, so that `[x, x]` forty times over is a list of two and a text of 2^40
characters. So whoever writes a value asks the rendering's budget before there is a text.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from functools import wraps
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from cluster.models.text.template_budget import spend

CHARS_OF_ASCII = 6
"""One character as it is written at the very most: `\\u0000` in JSON."""
CHARS_OF_ANY = 12
"""Beyond 16 bits: two of these."""
CHARS_OF_OTHERS = 32
"""A number, or the brackets and commas of a list."""
_LISTS = (list, tuple, KeysView, ValuesView, ItemsView)


def text_of(value: Any) -> str:
    """As `str`. Raises SecurityError instead of writing what the budget has no room for."""
    if isinstance(value, str):
        return value
    ask_to_write(value)
    return str(value)


def ask_to_write(value: Any) -> int:
    """Spends what `repr` and JSON make of `value` at the most, and returns it: in characters."""
    total, left = 0, [value]
    while left:
        part = left.pop()
        units = _chars_of(part)
        spend(units)
        total += units
        left += _parts_of(part)
    return total


def writing_its_value(a_filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of texts that would write whatever else it is given."""

    @wraps(a_filter)
    def asking(value: Any, *args: Any, **kwargs: Any) -> Any:
        return a_filter(text_of(value), *args, **kwargs)

    return asking


def _chars_of(value: Any) -> int:
    if isinstance(value, Namespace):
        raise SecurityError("a namespace cannot be written; write what is in it")
    if isinstance(value, str):
        per_character = CHARS_OF_ASCII if value.isascii() else CHARS_OF_ANY
        return CHARS_OF_OTHERS + per_character * len(value)
    if isinstance(value, int):
        return CHARS_OF_OTHERS + value.bit_length() // 3
    return CHARS_OF_OTHERS


def _parts_of(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, _LISTS) else ()
