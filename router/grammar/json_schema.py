"""A client's JSON schema, checked: within limits, without what cannot be followed, and with `oneOf`
of alternatives that exclude each other as `anyOf`.

What is not supported is refused by its name and place. Properties come in the schema's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.grammar import Grammar, GrammarKind, parts_of, whole_of
from router.grammar.exclusion import Exclusions
from router.grammar.json_pointer import named_by
from router.grammar.limits import (
    MAX_ALTERNATIVES,
    MAX_DEPTH,
    MAX_EXCLUSIONS,
    MAX_PATTERNS,
    MAX_PATTERNS_TOGETHER,
    MAX_PROPERTIES,
    MAX_REFS,
    check_at_most,
    check_least,
    check_size,
    refuse,
)
from router.grammar.schema_budget import Allowance, SchemaBudget, budget_of

WHITESPACE = r"[ \t\n\r]{0,24}"
"""Between tokens of JSON: a line and ten indents. Without an end a small model may go on for as
long as it is let."""
_OF_NAMES = ("properties", "patternProperties", "$defs", "definitions")
_OF_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_OF_ONE = ("additionalProperties", "items", "additionalItems")
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "not": (),
    "if": (),
    "then": (),
    "else": (),
    "contains": (),
    "minContains": (),
    "maxContains": (),
    "uniqueItems": (False,),
    "propertyNames": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "$dynamicRef": (),
    "$recursiveRef": (),
    "x-guidance": (),
}
"""By keyword: values that ask for nothing."""
_NO_SIBLINGS = ("draft-03", "draft-04", "draft-06", "draft-07")
"""In `$schema`: drafts in which nothing beside a `$ref` counts."""
_DRAFTS = ("http://json-schema.org/", "https://json-schema.org/")
"""How the `$schema` of a draft begins. Others may have keywords that nobody here knows."""
_BESIDE_REF = {"$ref", "title", "description", "default", "examples", "$comment", "deprecated"} | {
    *("readOnly", "writeOnly", "definitions", "$defs", "$schema", "$id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """vLLM's words for how JSON is written."""

    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    """Objects with `properties` that say nothing of others have no others."""
    whitespace_pattern: str | None = None
    """A regular expression for what may stand between tokens of JSON."""


AS_IT_COMES = JsonOptions()


def schema_grammar(
    schema: Any,
    *,
    param: str,
    kind: GrammarKind = GrammarKind.JSON_SCHEMA,
    options: JsonOptions = AS_IT_COMES,
    comparisons: Allowance | None = None,
) -> Grammar:
    """Raises InvalidRequest, naming the keyword and `param`. `comparisons`: see `budget_of`."""
    closes = options.disable_additional_properties
    budget = budget_of(param, comparisons)
    checked = checked_schema(schema, param=param, closes_objects=closes, budget=budget)
    whole = _with_options(checked, param, options)
    return Grammar(_text(lambda: whole_of([{"json_schema": whole}]), param), kind, param)


def checked_schema(
    schema: Any, *, param: str, closes_objects: bool = False, budget: SchemaBudget | None = None
) -> Any:
    """The schema as it can be compiled. Raises InvalidRequest, naming the keyword and `param`.

    `budget`: that of the whole request, where it has several schemas."""
    budget = budget or SchemaBudget(param)
    return _Walk(schema, param, closes_objects, budget).checked(schema, "#", 0)


def json_in_lark(schema: Any, *, param: str, budget: SchemaBudget | None = None) -> str:
    """A schema as a term of Lark: `%json {...}`. Raises as `checked_schema`."""
    return checked_in_lark(checked_schema(schema, param=param, budget=budget), param=param)


def checked_in_lark(checked: Any, *, param: str) -> str:
    """The same of one that was checked before, or that is part of one. Raises InvalidRequest for
    what is too long, or false."""
    whole = _with_options(checked, param, AS_IT_COMES)
    return f"%json {_text(lambda: msgspec.json.encode(whole).decode(), param)}"


def schema_in(grammar: Grammar) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `schema_grammar` has made of a schema, and its words for whitespace."""
    whole = dict(parts_of(grammar)[-1]["json_schema"])
    return whole, whole.pop("x-guidance")


def _with_options(checked: Any, param: str, options: JsonOptions) -> dict[str, Any]:
    if checked is False:
        refuse(f"{param} is false: no answer is valid", param)
    return {**({} if checked is True else checked), "x-guidance": _whitespace(options)}


def _whitespace(options: JsonOptions) -> dict[str, Any]:
    if options.disable_any_whitespace:
        return {"whitespace_flexible": False}
    return {"whitespace_pattern": options.whitespace_pattern or WHITESPACE}


def _text(write: Callable[[], str], param: str) -> str:
    try:
        return check_size(write(), param)
    except RecursionError:
        refuse(f"{param} is nested too deeply", param)


@dataclass(slots=True)
class _Walk:
    """Through every schema in a schema, once."""

    root: Any
    param: str
    closes_objects: bool
    budget: SchemaBudget
    num_patterns: int = 0
    num_exclusions: int = 0
    asks_for_several: bool = False
    refs: set[str] = field(default_factory=set)
    found: dict[str, Any] = field(default_factory=dict)
    """By target of `$ref`."""
    exclusions: Exclusions = field(init=False)
    is_old: bool = field(init=False)
    """Nothing beside a `$ref` counts."""

    def __post_init__(self) -> None:
        self.exclusions = Exclusions(self._resolved, self.budget)
        stated = self.root.get("$schema") if isinstance(self.root, dict) else None
        if stated is not None and not str(stated).startswith(_DRAFTS):
            refuse(f"{self.param}: `$schema` is {str(stated)[:80]!r}, no draft", self.param)
        self.is_old = any(draft in str(stated) for draft in _NO_SIBLINGS)

    def checked(self, node: Any, place: str, depth: int) -> Any:
        """`place`: a JSON pointer, for messages."""
        self._count(place, depth)
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            refuse(f"{self.param}: {place} is no schema: an object or a boolean", self.param)
        self._refuse_unsupported(node, place)
        self._note(node, place)
        known = {key: value for key, value in node.items() if key not in _UNSUPPORTED}
        for name in _OF_NAMES:
            if name in known:
                known[name] = self._of_names(known[name], f"{place}/{name}", depth)
        for name in _OF_LISTS:
            if name in known:
                known[name] = self._of_list(known[name], f"{place}/{name}", depth)
        for name in _OF_ONE:
            if name in known:
                known[name] = self._of_one(known[name], f"{place}/{name}", depth)
        if "oneOf" in known:
            self._tell_apart(known, place)
        if self.closes_objects and "properties" in known:
            known.setdefault("additionalProperties", False)
        return known

    def _count(self, place: str, depth: int) -> None:
        self.budget.schemas.take(1, self.param)
        if depth > MAX_DEPTH:
            refuse(f"{self.param}: {place[:80]}... is nested over {MAX_DEPTH} deep", self.param)

    def _refuse_unsupported(self, node: dict[str, Any], place: str) -> None:
        for name in [name for name in node if name in _UNSUPPORTED]:
            if not any(node[name] is value or node[name] == value for value in _UNSUPPORTED[name]):
                refuse(f"{self.param}: `{name}` at {place} is not supported", self.param)

    def _note(self, node: dict[str, Any], place: str) -> None:
        """What is limited of the schema as a whole."""
        self.num_patterns += "pattern" in node
        check_least(node.get("minLength"), place, self.param)
        num_required, what = len(_list(node.get("required"))), f"names in {place[:80]}/required"
        check_at_most(num_required, MAX_PROPERTIES, what, self.param)
        self.num_patterns += len(_dict(node.get("patternProperties")))
        self.asks_for_several |= len(_list(node.get("allOf"))) > 1
        limit = MAX_PATTERNS_TOGETHER if self.asks_for_several else MAX_PATTERNS
        what = "patterns beside an allOf" if self.asks_for_several else "patterns"
        check_at_most(self.num_patterns, limit, what, self.param)
        if "$ref" in node:
            self._note_ref(node, place)

    def _note_ref(self, node: dict[str, Any], place: str) -> None:
        target = node["$ref"]
        if not isinstance(target, str) or not target.startswith("#"):
            refuse(
                f"{self.param}: `$ref` at {place} leads elsewhere; only #... is followed",
                self.param,
            )
        self.refs.add(target)
        check_at_most(len(self.refs), MAX_REFS, "targets of $ref", self.param)
        if self.is_old and (beside := node.keys() - _BESIDE_REF):
            refuse(
                f"{self.param}: {sorted(beside)[0]!r} beside `$ref` at {place} has no effect in "
                "that draft; leave it out, or name a newer $schema",
                self.param,
            )

    def _of_names(self, named: Any, place: str, depth: int) -> dict[str, Any]:
        if not isinstance(named, dict):
            refuse(f"{self.param}: {place} is no object", self.param)
        check_at_most(len(named), MAX_PROPERTIES, f"names in {place[:80]}", self.param)
        return {
            name: self.checked(schema, f"{place}/{name[:40]}", depth + 1)
            for name, schema in named.items()
        }

    def _of_list(self, schemas: Any, place: str, depth: int) -> list[Any]:
        if not isinstance(schemas, list):
            refuse(f"{self.param}: {place} is no list", self.param)
        check_at_most(len(schemas), MAX_ALTERNATIVES, f"schemas in {place[:80]}", self.param)
        return [self.checked(s, f"{place}/{i}", depth + 1) for i, s in enumerate(schemas)]

    def _of_one(self, schema: Any, place: str, depth: int) -> Any:
        if isinstance(schema, list):  # `items` of older drafts
            return self._of_list(schema, place, depth)
        return self.checked(schema, place, depth + 1)

    def _tell_apart(self, node: dict[str, Any], place: str) -> None:
        """`oneOf` becomes `anyOf`, in place."""
        branches = node.pop("oneOf")
        self.num_exclusions += len(branches) * (len(branches) - 1) // 2
        check_at_most(self.num_exclusions, MAX_EXCLUSIONS, "pairs in oneOf", self.param)
        pairs = [(a, b) for i, a in enumerate(branches) for b in branches[:i]]
        if "anyOf" in node or not all(self.exclusions.exclude(a, b) for a, b in pairs):
            refuse(
                f"{self.param}: `oneOf` at {place} is not supported, but for alternatives that "
                "differ in their type, or in the const of a property that all of them require; "
                "use anyOf",
                self.param,
            )
        node.pop("discriminator", None)
        node["anyOf"] = branches

    def _resolved(self, schema: Any) -> Any:
        return target_of(schema, self.root, self.found)


def target_of(schema: Any, root: Any, found: dict[str, Any]) -> Any:
    """Where its `$ref`s lead in `root`; None: nowhere, or in a circle. `found`: where those that
    were followed in it before lead in the end, so that each is followed once."""
    passed: list[str] = []
    while isinstance(schema, dict) and "$ref" in schema:
        target = schema["$ref"]
        if not isinstance(target, str):
            schema = None
        elif target in found:
            schema = found[target]
        else:
            passed.append(target)
            found[target] = None  # met again on this way, it leads in a circle
            schema = named_by(target, root)
    for target in passed:
        found[target] = schema
    return schema


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
