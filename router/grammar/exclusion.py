"""Whether two schemas surely have no instance in common: then `oneOf` of them is `anyOf`.

Said only where it is proved: by types that differ, by constants that differ, or by a property that
both require and whose schemas exclude each other, as a discriminator's do.

The search has a budget of steps, each taken before it is done. Constants come first, then
properties whose schemas tell at a glance; pairs that were compared are remembered, and what is
known of a schema is read out of it once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from router.grammar.constant_keys import ConstantKeys
from router.grammar.schema_budget import SchemaBudget

Resolve = Callable[[Any], Any]
"""A schema behind its `$ref`s, as far as that is known."""
MAX_DEPTH = 4
MAX_REQUIRED = 16
"""Properties that are looked at: a discriminator comes early."""
NAMES_A_STEP = 8
"""Looked up in the time of one comparison."""
STEPS_A_PAIR = 4
"""Of schemas that are looked into: the time of so many comparisons, whatever is in them."""
_TYPES = {
    "array": 1,
    "boolean": 2,
    "integer": 4,
    "null": 8,
    "number": 4,  # some are integers
    "object": 16,
    "string": 32,
}
"""As bits."""
_OBJECT = _TYPES["object"]


@dataclass(slots=True, eq=False)
class _Facts:
    """What matters here of one schema."""

    values: frozenset[str] | None = None
    """Keys of all that an instance can be."""
    types: int | None = None
    """Bits of those that an instance can be of."""
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
        self._spend = partial(budget.comparisons.take, param=budget.param)
        self._keys = ConstantKeys(self._spend)
        self._facts: dict[int, tuple[_Facts, Any]] = {}
        """By the identity of a schema, which is held so that it stays its own."""
        self._pairs: dict[tuple[_Facts, _Facts, int], bool] = {}

    def exclude(self, first: Any, second: Any) -> bool:
        """True: no instance is valid under both. False: nobody knows. Raises InvalidRequest where
        the budget is spent."""
        facts, others = self._facts_of(first), self._facts_of(second)
        seen = self._at_a_glance(facts, others)
        return self._in_depth(facts, others, 0) if seen is None else seen

    def _in_depth(self, first: _Facts, second: _Facts, depth: int) -> bool:
        """Of two that tell nothing at a glance."""
        if depth >= MAX_DEPTH:
            return False
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
        if not first.types & second.types:
            return True
        return None if first.types == second.types == _OBJECT else False

    def _by_property(self, first: _Facts, second: _Facts, depth: int) -> bool:
        """Constants first: most alternatives differ there, and nothing else is read then."""
        self._spend(STEPS_A_PAIR)
        unseen: list[tuple[_Facts, _Facts]] = []  # of constants there is none
        ours, theirs = self._marks_of(first), self._marks_of(second)
        marked = self._shared(ours, theirs)
        if self._differ(ours, theirs, marked, unseen):
            return True
        ours, theirs = self._properties_of(first), self._properties_of(second)
        others = [name for name in self._shared(ours, theirs) if name not in marked]
        if self._differ(ours, theirs, others, unseen):
            return True
        self._spend(len(unseen))
        return any(self._in_depth(*pair, depth + 1) for pair in unseen)

    def _shared(self, ours: _Properties, theirs: _Properties) -> list[str]:
        self._spend(len(ours) // NAMES_A_STEP)
        return [name for name in ours if name in theirs]

    def _differ(
        self, ours: _Properties, theirs: _Properties, names: list[str], unseen: list[Any]
    ) -> bool:
        """By one of these at a glance; those of which none tells are added to `unseen`."""
        for name in names:
            seen = self._at_a_glance(ours[name], theirs[name])
            if seen:
                return True
            if seen is None:
                unseen.append((ours[name], theirs[name]))
        return False

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
        values, names, types = _values(schema), _list(schema, "required"), _list(schema, "type")
        self._spend(1 + len(values or ()) + len(names) + len(types))
        constants = None
        if values is not None:
            constants = frozenset(map(self._keys.key, values))
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


def _is_constant(schema: Any) -> bool:
    return isinstance(schema, dict) and _values(schema) is not None


def _types(schema: dict[str, Any]) -> int | None:
    """No instance is of a type that is none: the compiler says that there is no such."""
    names = schema.get("type")
    if isinstance(names, str):
        return _TYPES.get(names, 0)
    if not isinstance(names, list) or not names:
        return None
    types = 0
    for name in names:
        types |= _TYPES.get(name, 0) if isinstance(name, str) else 0
    return types


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
