"""Grammars that were made to crash, hang or slow down whoever compiles them."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

from cluster.grammar import Grammar, GrammarKind, whole_of
from router.grammar.json_schema import schema_grammar
from router.grammar.lark import choice_grammar, lark_grammar, regex_grammar
from router.grammar.structural_tag import structural_tag_grammar


def chain(length: int, *, through_objects: bool = False) -> dict[str, Any]:
    """Of `$ref`s."""

    def link(name: str) -> dict[str, Any]:
        ref = {"$ref": f"#/$defs/{name}"}
        return {"type": "object", "properties": {"x": ref}} if through_objects else ref

    links: dict[str, Any] = {f"a{i}": link(f"a{i + 1}") for i in range(length)}
    return {"$defs": links | {f"a{length}": {"type": "null"}}, "$ref": "#/$defs/a0"}


def deep(levels: int, key: str) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = {key: {"a": schema}} if key == "properties" else {key: [schema]}
    return schema


def patterns(count: int) -> list[dict[str, Any]]:
    return [{"type": "string", "pattern": f".*{chr(97 + i % 26)}.*{i}"} for i in range(count)]


def names(count: int) -> dict[str, Any]:
    return {f"p{i}": {"type": "string"} for i in range(count)}


def led_to_often(branches: list[dict[str, Any]], num_links: int = 0) -> dict[str, Any]:
    """700 parameters which all lead to one choice, whose branches may lead through a chain."""
    links: dict[str, Any] = {f"c{i}": {"$ref": f"#/c{i + 1}"} for i in range(num_links)}
    properties = {f"p{i}": {"$ref": "#/d"} for i in range(700)}
    last = {f"c{num_links}": {"type": "integer"}}
    return {"properties": properties, "d": {"anyOf": branches}, **links, **last}


PARAMETERS: dict[str, dict[str, Any]] = {
    "a chain at each of 700 alternatives": led_to_often([{"$ref": "#/c0"}] * 700, 46),
    "1,000 alternatives": led_to_often([{"type": "null"}] * 1000),
    "200 types": led_to_often([{"type": f"t{i}"} for i in range(200)]),
    "700 alternatives in a circle": led_to_often([{"$ref": "#/d"}] * 700),
    "a chain of 400": led_to_often([{"$ref": "#/c0"}] * 100, 400),
}
"""Of tools that are not strict: bodies of under 32 KiB, which the event loop reads."""
SCHEMAS: dict[str, Any] = {
    "1,200 refs": chain(1200),
    "3,000 refs": chain(3000),
    "3,000 refs through objects": chain(3000, through_objects=True),
    "allOf of 23 patterns": {"allOf": patterns(23)},
    "allOf of 200 patterns": {"allOf": patterns(200)},
    "patterns behind refs": {
        "$defs": {f"a{i}": schema for i, schema in enumerate(patterns(30))},
        "allOf": [{"$ref": f"#/$defs/a{i}"} for i in range(30)],
    },
    "allOf in allOf": {"allOf": [{"allOf": patterns(12)}, {"allOf": patterns(12)}]},
    "patterns of one property": {
        "allOf": [{"type": "object", "properties": {"x": one}} for one in patterns(24)]
    },
    "5,000 optional properties": {"type": "object", "properties": names(5000)},
    "2,000 optional properties": {"type": "object", "properties": names(2000)},
    "anyOf of 3,000": {"anyOf": [{"type": "object", "properties": names(1)}] * 3000},
    "anyOf in anyOf": deep(400, "anyOf"),
    "a pattern of 100,000 letters": {"type": "string", "pattern": "a" * 100_000},
    "800 deep": deep(400, "properties"),
    "60 deep": deep(60, "properties"),
    "an enum of 20,000": {"enum": [f"value {i}" for i in range(20_000)]},
    "500 patterns": {"type": "object", "patternProperties": {f"^{i}$": {} for i in range(500)}},
    "oneOf of 200": {"oneOf": [{"const": i} for i in range(200)]},
    "a ref to itself": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "look-ahead": {"type": "string", "pattern": "(?=a)b"},
    "a lenient schema": {"x-guidance": {"lenient": True}, "not": {}},
}
LARK: dict[str, str] = {
    "a chain of 3,000 rules": "start: a0\n"
    + "\n".join(f"a{i}: a{i + 1}" for i in range(3000))
    + '\na3000: "x"',
    "a chain of 1,500 short rules": "start: a\n"
    + "\n".join(f"r{i:x}: r{i + 1:x}" for i in range(1500)),
    "3,000 brackets": "start: " + "(" * 3000 + '"a"' + ")" * 3000,
    "26 terms at once": "start: T\nT: " + " & ".join(f"/.*{c}.*{c}/" for c in ascii_lowercase),
    "a rule of nothing but itself": "start: start",
    "no start": 'other: "a"',
    "a token that is not there": "start: <|nothing of the kind|>",
}


def makers() -> dict[str, Callable[[], Grammar]]:
    """As a door would make them of what came."""

    def of_schema(schema: Any) -> Callable[[], Grammar]:
        return lambda: schema_grammar(schema, param="schema")

    def of_lark(text: str) -> Callable[[], Grammar]:
        return lambda: lark_grammar(text, param="grammar")

    return {
        **{name: of_schema(schema) for name, schema in SCHEMAS.items()},
        **{name: of_lark(text) for name, text in LARK.items()},
        "an expression of 40,000 letters": lambda: regex_grammar("ab" * 20_000, param="regex"),
        "10,000 choices": lambda: choice_grammar([str(i) for i in range(10_000)], param="choice"),
        "a structural tag of 1,000 triggers": lambda: structural_tag_grammar(
            {"triggers": [f"<{i}" for i in range(1000)], "structures": []}, param="tag"
        ),
    }


def past_the_checks() -> dict[str, Grammar]:
    """What a check that forgot something would let through."""
    kept = (
        "3,000 refs through objects",
        "allOf of 23 patterns",
        "patterns of one property",
        "5,000 optional properties",
        "anyOf of 3,000",
    )
    found = {
        name: Grammar(whole_of([{"json_schema": SCHEMAS[name]}]), GrammarKind.JSON_SCHEMA)
        for name in kept
    }
    chained = LARK["a chain of 3,000 rules"]
    return found | {"rules": Grammar(chained, GrammarKind.LARK)}
