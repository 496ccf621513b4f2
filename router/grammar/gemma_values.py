"""Arguments as FunctionGemma writes them: `city:<escape>Paris<escape>,days:2`, lists and objects in
the same way. What they write, router/tools/gemma_calls.py reads as an instance of the schema.

It is no JSON, so a schema is followed here by its own: types, enums and constants, `anyOf`, `$ref`,
objects with their properties in order, lists and their lengths, and bounds of numbers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from router.grammar.in_order import OrderedTerm, in_order
from router.grammar.json_schema import json_in_lark, target_of
from router.grammar.lark_terms import Terms, quoted
from router.grammar.limits import (
    MAX_ALTERNATIVES,
    MAX_PROPERTIES,
    check_at_most,
    check_size,
    refuse,
)
from router.grammar.schema_budget import SchemaBudget
from router.grammar.separate_values import DEFS, WORDS
from router.tools.family_words import ESCAPE

MAX_KEY_CHARS = 256
_BARE_KEY = re.compile(r"[^:,{}\[\]\s<]+")
_QUIET = WORDS | {*DEFS}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_FOLLOWED: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": (),
    "number": _BOUNDS,
    "integer": _BOUNDS,
    "boolean": (),
    "null": (),
}
"""By type."""
_SIMPLE = {"string": "gemma_text", "boolean": '("true" | "false")', "null": '"null"'}
_KEY = 'GEMMA_KEY ":"'


def gemma_rules(terms: Terms) -> list[str]:
    """Of any text, and of any value."""
    return [
        f"gemma_text: {terms.word(ESCAPE)} gemma_quoted",
        *terms.up_to(ESCAPE, "gemma_quoted"),
        r"GEMMA_KEY: /[^:,{}\[\]\s<\x00-\x1f]{1,64}/",
        f"gemma_scalar: {json_in_lark({'type': ['number', 'boolean', 'null']}, param='tools')}",
        "gemma_any: gemma_text | gemma_scalar | gemma_list | gemma_object",
        'gemma_list: "[" (gemma_any ("," gemma_any)*)? "]"',
        f"gemma_object: {_map_of('gemma_any')}",
    ]


class GemmaValues:
    """Of one function, whose schema is checked: `arguments` is a term, an object with its
    brackets."""

    def __init__(
        self,
        schema: dict[str, Any],
        terms: Terms,
        name: str,
        *,
        param: str,
        budget: SchemaBudget,
    ) -> None:
        """`name`: how the names of its `rules` begin. `budget`: of all functions of the request.
        Raises InvalidRequest naming what cannot be followed."""
        self._root, self._budget = schema, budget
        check_size(msgspec.json.encode(self._root).decode(), param)
        self._terms = terms
        self._name = name
        self._param = param
        self._found: dict[str, Any] = {}
        self._rule_of_ref: dict[str, str] = {}
        self._unwritten: deque[tuple[str, Any, str]] = deque()
        """Rules that are named already: name, schema and place."""
        self._num_names = 0
        self.rules: list[str] = []
        self.arguments = self._value(self._root, "#")
        while self._unwritten:  # a chain of them may be longer than calls can be nested
            rule, found, place = self._unwritten.popleft()
            self.rules.append(f"{rule}: {self._value(found, place)}")

    def _value(self, schema: Any, place: str) -> str:
        """A term. What a `$ref` leads to may never have been looked at before."""
        self._budget.followed.take(1, self._param)
        if schema is True:
            return "gemma_any"
        if not isinstance(schema, dict):
            self._refuse(f"no value is valid at {place}")
        known = schema.keys() - _QUIET
        for name in ("const", "enum"):
            if name in known:
                self._check_known(known, {name, "type"}, place)
                return self._one_of(schema, place)
        for name in ("$ref", "anyOf", "allOf"):
            if name in known:
                self._check_known(known, {name}, place)
                return (
                    self._ref(schema[name]) if name == "$ref" else self._some(schema, name, place)
                )
        return self._of_types(schema, known, place)

    def _ref(self, target: Any) -> str:
        if not isinstance(target, str):
            self._refuse("a `$ref` is no text")
        rule = self._rule_of_ref.get(target)
        if rule is None:
            rule = self._rule_of_ref[target] = self._new_name("d")
            found = target_of({"$ref": target}, self._root, self._found)
            if found is None:
                self._refuse(f"`$ref` {target[:80]!r} leads to no definition")
            self._unwritten.append((rule, found, target[:80]))
        return rule

    def _some(self, schema: dict[str, Any], name: str, place: str) -> str:
        branches = schema[name]
        if not branches or not isinstance(branches, list):
            self._refuse(f"`{name}` at {place} is no list of schemas, or empty")
        if name == "allOf" and len(branches) > 1:
            self._refuse(f"`allOf` at {place} is not supported")
        values = [self._value(each, f"{place}/{name}/{i}") for i, each in enumerate(branches)]
        return f"({' | '.join(values)})"

    def _of_types(self, schema: dict[str, Any], known: set[str], place: str) -> str:
        stated = schema.get("type")
        types = stated if isinstance(stated, list) else [stated]
        if stated is None:
            types = [name for name, words in _FOLLOWED.items() if known.intersection(words)]
        words = {word for name in types for word in _FOLLOWED.get(str(name), ())}
        self._check_known(known, words | {"type"}, place)
        if not types and stated is None:
            return "gemma_any"
        if not types:
            self._refuse(f"`type` at {place} names none")
        return f"({' | '.join(self._of_type(str(name), schema, place) for name in types)})"

    def _of_type(self, name: str, schema: dict[str, Any], place: str) -> str:
        if name not in _FOLLOWED:
            self._refuse(f"`type` at {place} is {name[:50]!r}")
        if name == "object":
            return self._object(schema, place)
        if name == "array":
            return self._list(schema, place)
        if name in _SIMPLE:
            return _SIMPLE[name]
        bounds = {word: schema[word] for word in _BOUNDS if word in schema}
        number = json_in_lark({"type": name, **bounds}, param=self._param)
        self._budget.written_bytes.take(len(number), self._param)
        return number

    def _list(self, schema: dict[str, Any], place: str) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems", MAX_ALTERNATIVES)
        if type(least) is not int or type(most) is not int or not 0 <= least <= most:
            self._refuse(f"minItems and maxItems at {place} leave no length for a list")
        check_at_most(least, MAX_ALTERNATIVES, "items that a list must have", self._param)
        if isinstance(schema.get("items"), list):
            self._refuse(f"`items` at {place} is a list, which is not supported")
        if most == 0:
            return '("[" "]")'
        item = self._rule("i", self._value(schema.get("items", True), f"{place}/items"))
        more = f'("," {item}){{{max(0, least - 1)},{min(most, MAX_ALTERNATIVES) - 1}}}'
        body = f"{item} {more}"
        return f'("[" {body} "]")' if least else f'("[" ({body})? "]")'

    def _object(self, schema: dict[str, Any], place: str) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            self._refuse(f"properties at {place} must be an object, and required a list")
        check_at_most(len(required), MAX_PROPERTIES, "names in a `required`", self._param)
        needed = set(map(str, required))
        if needed - properties.keys():
            self._refuse(f"`required` at {place} names what is no property")
        others = schema.get("additionalProperties", True)
        if not properties and others is not False and "properties" not in schema:
            return _map_of(self._rule("v", self._value(others, f"{place}/additionalProperties")))
        parts = [
            OrderedTerm(self._pair(name, each, f"{place}/{name[:40]}"), name in needed)
            for name, each in properties.items()
        ]
        body, rules = in_order(parts, '","', self._new_name("o"))
        self.rules += rules
        return self._rule("o", f'"{{" {body} "}}"')  # brackets in brackets have a limit

    def _pair(self, name: str, schema: Any, place: str) -> str:
        return f'({self._key(name)} ":" {self._value(schema, place)})'

    def _key(self, name: str) -> str:
        if _BARE_KEY.fullmatch(name):
            return quoted(name)
        if not _is_written(name) or len(name) > MAX_KEY_CHARS:
            self._refuse(f"the name {name[:80]!r} cannot be written")
        return self._text(name)

    def _one_of(self, schema: dict[str, Any], place: str) -> str:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(values, list):
            self._refuse(f"`enum` at {place} is no list")
        stated = schema.get("type")
        types = stated if isinstance(stated, list) else None if stated is None else [stated]
        kept = [v for v in values if _is_written(v) and (types is None or _is_of(v, types))]
        if not kept:
            self._refuse(f"no value can be written at {place}")
        return f"({' | '.join(map(self._literal, kept))})"

    def _literal(self, value: Any) -> str:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            inner = ' "," '.join(map(self._literal, value))
            return f'("[" {inner} "]")'
        if isinstance(value, dict):
            pairs = [f'{self._key(key)} ":" {self._literal(each)}' for key, each in value.items()]
            inner = ' "," '.join(pairs)
            return f'("{{" {inner} "}}")'
        return quoted(msgspec.json.encode(value).decode())

    def _text(self, text: str) -> str:
        quote = self._terms.word(ESCAPE)
        return f"({quote} {quoted(text)} {quote})" if text else f"({quote} {quote})"

    def _rule(self, kind: str, term: str) -> str:
        """Its name, where it is more than a name itself."""
        if term.isidentifier():
            return term
        name = self._new_name(kind)
        self.rules.append(f"{name}: {term}")
        return name

    def _new_name(self, kind: str) -> str:
        self._num_names += 1
        return f"{self._name}_{kind}{self._num_names}"

    def _check_known(self, known: set[str], followed: set[str], place: str) -> None:
        if others := sorted(known - followed):
            self._refuse(f"`{others[0]}` at {place} is not supported")

    def _refuse(self, what: str) -> NoReturn:
        refuse(f"{self._param}: {what} where calls are written as gemma", self._param)


def _map_of(value: str) -> str:
    pair = f"{_KEY} {value}"
    return f'("{{" ({pair} ("," {pair})*)? "}}")'


def _is_written(value: Any) -> bool:
    """No text in it has the word that ends one."""
    if isinstance(value, str):
        return ESCAPE not in value
    if isinstance(value, dict):
        return all(_is_written(key) and _is_written(each) for key, each in value.items())
    return not isinstance(value, list) or all(map(_is_written, value))


def _is_of(value: Any, types: list[Any]) -> bool:
    match value:
        case bool():
            return "boolean" in types
        case int():
            return "integer" in types or "number" in types
        case float():
            return "number" in types or ("integer" in types and value.is_integer())
        case None:
            return "null" in types
        case str():
            return "string" in types
    return ("array" if isinstance(value, list) else "object") in types
