"""Whether two schemas surely have no instance in common: then `oneOf` of them is `anyOf`.

Said only where it is proved: by types that differ, by constants that differ, or by a property that
both require and whose schemas exclude each other, as a discriminator's do.

The search has a budget of steps. Constants come first, then properties whose schemas tell at a
glance; pairs that were compared are remembered, and what is known of a schema is read out of it
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
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
_OBJECT = frozenset({"object"})


@dataclass(slots=True, eq=False)
class _Facts:
    """What matters here of one schema."""

    values: frozenset[Any] | None = None
    """All that an instance can be, so that equal ones are equal here. Python takes 1 and true for
    the same, which excludes less."""
    types: frozenset[str] | None = None
    required: dict[str, Any] = field(default_factory=dict)
    """Schemas of properties that an instance surely has."""
    marks: _Properties | None = None
    """Of those that are constants; None: nobody has asked yet."""
    properties: _Properties | None = None
    """Of all; None: nobody has asked yet."""


_Properties = dict[str, _Facts]


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
        seen, num_steps = _at_a_glance(first, second)
        self._spend(num_steps)
        if seen is not None or depth >= MAX_DEPTH:
            return bool(seen)
        pair = (first, second, depth)
        if pair not in self._pairs:
            self._pairs[pair] = self._by_property(first, second, depth)
        return self._pairs[pair]

    def _by_property(self, first: _Facts, second: _Facts, depth: int) -> bool:
        """Constants first: most alternatives differ there, and nothing else is read then."""
        ours, theirs = self._marks_of(first), self._marks_of(second)
        marked = [name for name in ours if name in theirs]
        if self._differ(ours, theirs, marked, []):
            return True
        ours, theirs = self._properties_of(first), self._properties_of(second)
        others = [name for name in ours if name in theirs and name not in marked]
        unseen: list[tuple[_Facts, _Facts]] = []
        return self._differ(ours, theirs, others, unseen) or any(
            self._exclude(*pair, depth + 1) for pair in unseen
        )

    def _differ(
        self, ours: _Properties, theirs: _Properties, names: list[str], unseen: list[Any]
    ) -> bool:
        """By one of these at a glance; those of which none tells are added to `unseen`."""
        num_steps, is_told = 0, False
        for name in names:
            seen, num_more = _at_a_glance(ours[name], theirs[name])
            num_steps += num_more
            if seen:
                is_told = True
                break
            if seen is None:
                unseen.append((ours[name], theirs[name]))
        self._spend(num_steps)
        return is_told

    def _marks_of(self, facts: _Facts) -> _Properties:
        if facts.marks is None:
            facts.marks = {
                name: self._facts_of(schema)
                for name, schema in facts.required.items()
                if _is_constant(self._resolve(schema))
            }
        return facts.marks

    def _properties_of(self, facts: _Facts) -> _Properties:
        if facts.properties is None:
            required = facts.required.items()
            facts.properties = {name: self._facts_of(schema) for name, schema in required}
        return facts.properties

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


def _at_a_glance(first: _Facts, second: _Facts) -> tuple[bool | None, int]:
    """None: only their properties may tell; and the steps that it took."""
    if first.values is not None and second.values is not None:
        num_steps = 1 + min(len(first.values), len(second.values))
        return first.values.isdisjoint(second.values), num_steps
    if first.types is None or second.types is None:
        return False, 1
    if first.types.isdisjoint(second.types):
        return True, 1
    return None if first.types == second.types == _OBJECT else False, 1


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


def _is_constant(schema: Any) -> bool:
    return isinstance(schema, dict) and _values(schema) is not None


def _hashable(value: Any, depth: int) -> Any:
    """Equal for equal values of JSON."""
    if depth > MAX_VALUE_DEPTH:
        return None
    if isinstance(value, dict):
        return frozenset((name, _hashable(each, depth + 1)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_hashable(each, depth + 1) for each in value)
    return value


@lru_cache(maxsize=16)
def _one_type(name: str) -> frozenset[str]:
    return frozenset((_OVERLAPS.get(name, name),))


def _types(schema: dict[str, Any]) -> frozenset[str] | None:
    names = schema.get("type")
    if isinstance(names, str):
        return _one_type(names)
    if not isinstance(names, list) or not names:
        return None
    return frozenset(_OVERLAPS.get(str(name), str(name)) for name in names)
