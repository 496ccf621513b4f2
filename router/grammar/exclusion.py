"""Whether two schemas surely have no instance in common: then `oneOf` of them is `anyOf`.

Said only where it is proved: by types that differ, by constants that differ, or by a property that
both require and whose schemas exclude each other, as a discriminator's do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Resolve = Callable[[Any], Any]
"""A schema behind its `$ref`s, as far as that is known."""
MAX_DEPTH = 4
MAX_REQUIRED = 16
"""Properties that are looked at: a discriminator comes early."""
_OVERLAPS = {"integer": "number"}


def exclude(first: Any, second: Any, resolve: Resolve, depth: int = 0) -> bool:
    """True: no instance is valid under both. False: nobody knows."""
    first, second = resolve(first), resolve(second)
    if depth > MAX_DEPTH or not isinstance(first, dict) or not isinstance(second, dict):
        return False
    values = _values(first), _values(second)
    if values[0] is not None and values[1] is not None:
        others = values[1]
        return not any(value == other for value in values[0] for other in others)
    types = _types(first), _types(second)
    if types[0] is None or types[1] is None:
        return False
    return types[0].isdisjoint(types[1]) or (
        types[0] == types[1] == {"object"} and _by_property(first, second, resolve, depth)
    )


def _by_property(
    first: dict[str, Any], second: dict[str, Any], resolve: Resolve, depth: int
) -> bool:
    here, there = _required(first), _required(second)
    return any(
        exclude(here[name], there[name], resolve, depth + 1) for name in here.keys() & there.keys()
    )


def _required(schema: dict[str, Any]) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    names = [name for name in required if isinstance(name, str) and name in properties]
    return {name: properties[name] for name in names[:MAX_REQUIRED]}


def _values(schema: dict[str, Any]) -> list[Any] | None:
    """All that an instance can be. Python takes 1 and true for the same, which excludes less."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _types(schema: dict[str, Any]) -> set[str] | None:
    stated = schema.get("type")
    names = [stated] if isinstance(stated, str) else stated
    if not isinstance(names, list) or not names:
        return None
    return {_OVERLAPS.get(str(name), str(name)) for name in names}
