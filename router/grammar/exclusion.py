"""Whether two schemas surely have no instance in common: then `oneOf` of them is `anyOf`.

Said only where it is proved: by types that differ, by constants that differ, or by a property that
both require and whose schemas exclude each other, as a discriminator's do.

The search has a budget of steps. Properties whose schemas tell at a glance come first, pairs that
were compared are remembered, and what is known of a schema is read out of it once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from router.grammar.schema_budget import SchemaBudget

Resolve = Callable[[Any], Any]
"""A schema behind its `$ref`s, as far as that is known."""
MAX_DEPTH = 4
MAX_REQUIRED = 16
"""Properties that are looked at: a discriminator comes early."""
MAX_VALUE_DEPTH = 8
"""Of a constant: what lies deeper counts as equal, which excludes less."""
_OVERLAPS = {"integer": "number"}


@dataclass(slots=True, eq=False)
class _Facts:
    """What matters here of one schema."""

    values: frozenset[Any] | None = None
    """All that an instance can be, so that equal ones are equal here. Python takes 1 and true for
    the same, which excludes less."""
    types: frozenset[str] | None = None
    required: dict[str, Any] = field(default_factory=dict)
    """Schemas of properties that an instance surely has."""


class Exclusions:
    """Of the schemas in one schema; what is made of them does not change meanwhile."""

    def __init__(self, resolve: Resolve, budget: SchemaBudget) -> None:
        self._resolve = resolve
        self._budget = budget
        self._facts: dict[int, tuple[_Facts, Any]] = {}
        """By the identity of a schema, which is held so that it stays its own."""
        self._pairs: dict[tuple[_Facts, _Facts, int], bool] = {}

    def exclude(self, first: Any, second: Any) -> bool:
        """True: no instance is valid under both. False: nobody knows. Raises InvalidRequest where
        the budget is spent."""
        return self._exclude(self._facts_of(first), self._facts_of(second), 0)

    def _exclude(self, first: _Facts, second: _Facts, depth: int) -> bool:
        seen = self._at_a_glance(first, second)
        if seen is not None or depth >= MAX_DEPTH:
            return bool(seen)
        pair = (first, second, depth)
        if pair not in self._pairs:
            self._pairs[pair] = self._by_property(first, second, depth)
        return self._pairs[pair]

    def _at_a_glance(self, first: _Facts, second: _Facts) -> bool | None:
        """None: only their properties may tell."""
        if first.values is not None and second.values is not None:
            self._spend(1 + min(len(first.values), len(second.values)))
            return first.values.isdisjoint(second.values)
        self._spend(1)
        if first.types is None or second.types is None:
            return False
        if first.types.isdisjoint(second.types):
            return True
        return None if first.types == second.types == {"object"} else False

    def _by_property(self, first: _Facts, second: _Facts, depth: int) -> bool:
        both = [
            (self._facts_of(schema), self._facts_of(second.required[name]))
            for name, schema in first.required.items()
            if name in second.required
        ]
        seen = [self._at_a_glance(*pair) for pair in both]
        if any(seen):
            return True
        unseen = [pair for pair, known in zip(both, seen, strict=True) if known is None]
        return any(self._exclude(*pair, depth + 1) for pair in unseen)

    def _spend(self, num_steps: int) -> None:
        self._budget.comparisons.take(num_steps, self._budget.param)

    def _facts_of(self, schema: Any) -> _Facts:
        if id(schema) not in self._facts:
            resolved = self._resolve(schema)
            facts = self._read(schema) if resolved is schema else self._facts_of(resolved)
            self._facts[id(schema)] = facts, schema
        return self._facts[id(schema)][0]

    def _read(self, schema: Any) -> _Facts:
        """Of a schema that is no `$ref`, in steps of what stands in it."""
        if not isinstance(schema, dict):
            return _Facts()
        values, required = _values(schema), schema.get("required")
        names = required if isinstance(required, list) else []
        self._spend(1 + len(values or ()) + len(names))
        constants = None
        if values is not None:
            constants = frozenset(_hashable(value, 0) for value in values)
        return _Facts(constants, _types(schema), _required(schema, names))


def _required(schema: dict[str, Any], required: list[Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    names = [name for name in required if isinstance(name, str) and name in properties]
    return {name: properties[name] for name in names[:MAX_REQUIRED]}


def _values(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _hashable(value: Any, depth: int) -> Any:
    """Equal for equal values of JSON."""
    if depth > MAX_VALUE_DEPTH:
        return None
    if isinstance(value, dict):
        return frozenset((name, _hashable(each, depth + 1)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_hashable(each, depth + 1) for each in value)
    return value


def _types(schema: dict[str, Any]) -> frozenset[str] | None:
    stated = schema.get("type")
    names = [stated] if isinstance(stated, str) else stated
    if not isinstance(names, list) or not names:
        return None
    return frozenset(_OVERLAPS.get(str(name), str(name)) for name in names)
