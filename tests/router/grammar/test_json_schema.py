"""Schemas of clients: what is followed, what is refused by its name, and what `oneOf` may be."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from cluster.errors import InvalidRequest
from cluster.models.text.grammars import MAX_LEXER_STATES
from router.grammar.json_schema import JsonOptions, checked_schema, schema_grammar, schema_in
from router.grammar.limits import MAX_LEAST_CHARS
from tests.engine.sampling.grammars.own_schemas import CAT, DOG, FISH, OWN, PET, PETS
from tests.router.grammar.matching import accepts


def grammar(schema: Any, **options: Any) -> Any:
    return schema_grammar(schema, param="schema", options=JsonOptions(**options))


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": {"type": "null"}}, "not"),
        ({"type": "array", "contains": {}}, "contains"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames"),
        ({"type": "object", "properties": {"a": {"if": {}, "then": {}}}}, "if"),
        ({"anyOf": [{"unevaluatedProperties": False}]}, "unevaluatedProperties"),
        ({"$defs": {"a": {"dependentRequired": {"b": ["c"]}}}}, "dependentRequired"),
        ({"dependencies": {"a": ["b"]}}, "dependencies"),
        ({"items": {"$dynamicRef": "#x"}}, "dynamicRef"),
        ({"x-guidance": {"lenient": True}}, "x-guidance"),
        ({"$ref": "https://elsewhere/schema"}, "ref"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_supported_is_refused_by_its_name(schema: Any, keyword: str) -> None:
    with pytest.raises(InvalidRequest, match=keyword) as refused:
        grammar(schema)
    assert refused.value.param == "schema"


def test_a_keyword_as_the_name_of_a_property_is_no_keyword() -> None:
    names = ["not", "if", "contains", "oneOf", "$ref", "x-guidance"]
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in names}}
    assert accepts(grammar(schema), json.dumps(dict.fromkeys(names)))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": False, "items": {"type": "integer"}},
        {"type": "object", "propertyNames": True},
        {"type": "object", "unevaluatedProperties": True, "dependentRequired": {}},
    ],
)
def test_a_keyword_that_asks_for_nothing_is_left_out(schema: Any) -> None:
    assert accepts(grammar(schema), "[1,1]" if schema["type"] == "array" else "{}")


def test_one_of_alternatives_with_a_discriminator_is_any_of_them() -> None:
    pets = grammar({"$defs": PETS, **PET})
    assert "oneOf" not in pets.text and "discriminator" not in pets.text
    assert accepts(pets, '{"kind": "dog", "good": true}')
    assert accepts(pets, '{"kind": "eel", "depth": 3}')
    assert not accepts(pets, '{"kind": "dog", "lives": 3}')


@pytest.mark.parametrize(
    "alternatives",
    [
        [CAT, CAT],
        [CAT, {**DOG, "required": ["good"]}],
        [FISH, {**CAT, "properties": {"kind": {"const": "eel"}, "lives": {}}}],
        [{"properties": {"kind": {"const": "cat"}}, "required": ["kind"]}, DOG],
        [{"enum": [1, 2]}, {"const": 2.0}],
        [{"type": ["string", "null"]}, {"type": "string"}],
        [True, {"type": "null"}],
    ],
)
def test_one_of_alternatives_that_may_both_hold_is_refused(alternatives: list[Any]) -> None:
    """Or that are not proved to exclude each other: strings are valid under the fourth."""
    with pytest.raises(InvalidRequest, match="oneOf"):
        grammar({"oneOf": alternatives})


@pytest.mark.parametrize(
    "alternatives",
    [
        [{"type": "string"}, {"type": "integer"}, {"type": "null"}],
        [{"const": "a"}, {"enum": ["b", "c"]}],
        [CAT, {"type": "array"}],
        [
            {**CAT, "properties": {"kind": {"$ref": "#/$defs/c"}, "lives": {}}},
            DOG,
        ],
    ],
)
def test_one_of_alternatives_that_exclude_each_other_is_followed(alternatives: list[Any]) -> None:
    checked = checked_schema({"$defs": {"c": {"const": "cat"}}, "oneOf": alternatives}, param="s")
    assert "oneOf" not in checked and len(checked["anyOf"]) == len(alternatives)


def test_what_stands_beside_a_ref_counts_but_in_drafts_where_it_does_not() -> None:
    schema = {"$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a", "maximum": 3}
    assert accepts(grammar(schema), "2") and not accepts(grammar(schema), "7")
    old = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    with pytest.raises(InvalidRequest, match="maximum"):
        grammar(old)


def test_properties_come_in_the_order_of_the_schema() -> None:
    schema = grammar({"type": "object", "properties": {"b": {}, "a": {}}, "required": ["a", "b"]})
    assert accepts(schema, '{"b": 1, "a": 2}') and not accepts(schema, '{"a": 2, "b": 1}')


def test_whitespace_has_an_end_and_the_clients_words_count() -> None:
    pair = {"type": "array", "items": {"type": "integer"}}
    assert accepts(grammar(pair), "[1,\n" + " " * 20 + "2]")
    assert not accepts(grammar(pair), "[1," + " " * 25 + "2]")
    tight = grammar(pair, disable_any_whitespace=True)
    assert accepts(tight, "[1,2]") and not accepts(tight, "[1, 2]")
    one = grammar(pair, whitespace_pattern=" ?")
    assert accepts(one, "[1, 2]") and not accepts(one, "[1,  2]")


def test_objects_are_closed_where_that_is_asked_for() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert accepts(grammar(schema), '{"a": 1, "b": 2}')
    closed = grammar(schema, disable_additional_properties=True)
    assert accepts(closed, '{"a": 1}') and not accepts(closed, '{"a": 1, "b": 2}')


def test_a_schema_of_true_is_anything_and_of_false_nothing() -> None:
    assert accepts(grammar(True), '[{"a": null}]')
    with pytest.raises(InvalidRequest, match="no answer is valid"):
        grammar(False)
    for nonsense in (3, "text", ["list"], None):
        with pytest.raises(InvalidRequest, match="no schema"):
            grammar(nonsense)


def test_a_schema_can_be_told_again() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {"const": "é"}}}
    told, whitespace = schema_in(grammar(schema, whitespace_pattern=" ?"))
    assert told == schema and list(told["properties"]) == ["b", "a"]
    assert whitespace == {"whitespace_pattern": " ?"}


ANSWERS: dict[str, list[Any]] = {
    "person": [{"name": "Ada", "age": 36}, {"name": "", "age": 0}],
    "optional": [{}, {"age": 1}, {"name": "x", "age": 9999}],
    "nested": [{"a": {"b": {"c": {"d": "deep"}}}}],
    "list of numbers": [[], [0], [1, 22, 333, 4444]],
    "list of objects": [[{"x": 1, "y": 2}, {"x": 3, "y": 4}]],
    "tuple": [["a", 1]],
    "nullable": [{"a": None}, {"a": "12345"}],
    "const object": [{"a": [1, 2, {"b": None}]}],
    "mixed enum": ["one", 1, True, None, [2], {"three": 3}],
    "unicode names": [{"größe": 1, "名前": "ß猫", "🙂": True}],
    "unicode enum": ["žluťoučký", "кошка", "猫", "😀👍🏽", "a\u0301"],
    "quotes in names": [{'say "hi"': True, "back\\slash": False, "line\nbreak": True}],
    "short text": ["ab", "abcd", "猫猫"],
    "pattern": ["AB-123"],
    "open pattern": ["b1b", "xxb2byy"],
    "date": ["2026-11-24", "2024-02-29"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "ipv4": ["127.0.0.1"],
    "bounds": [-5, 0, 5],
    "open bounds": [1, 99],
    "number": [0, 0.5, 1],
    "multiple": [0, 5, 100],
    "map": [{}, {"a": 1, "b": 2}],
    "named map": [{}, {"k1": True}],
    "any of": [7, True, {"a": "x"}],
    "all of": [3, 8],
    "one of types": [True, 3, None],
    "union by const": [{"kind": "cat", "lives": 9}, {"kind": "eel", "depth": 1}],
    "union in list": [[{"kind": "dog", "good": True}, {"kind": "cat", "lives": 1}]],
    "tree": [{"name": "r", "children": [{"name": "c", "children": []}]}],
    "chain": [{"value": 1, "next": {"value": 2, "next": None}}, {"value": 3}],
    "expression": [{"op": "+", "args": [1, {"op": "-", "args": [2, 3]}]}],
    "shared definitions": [{"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}}],
    "invoice": [
        {
            "id": "INV-0001",
            "lines": [{"item": "x", "count": 1, "price": 2.5}],
            "paid": False,
            "due": "2026-12-01",
        }
    ],
    "tool call": [{"name": "get_weather", "arguments": {"city": "Brno", "unit": "celsius"}}],
}


def changed(value: Any) -> list[Any]:
    """Values that differ from it in one place, or in their kind: many are invalid, some are not."""
    others: list[Any] = [None, True, -1, 3.5, 10**6, "other", [], {}, [value], {"a": value}]
    if isinstance(value, str):
        others += [value + "x" * 13, value[:-1], value.upper()]
    if isinstance(value, list):
        others += [value + value, value[1:], [*value, "x"]]
        others += [
            [*value[:i], other, *value[i + 1 :]]
            for i in range(len(value))
            for other in changed(value[i])
        ]
    if isinstance(value, dict):
        others += [{**value, "more": 1}]
        others += [{k: v for k, v in value.items() if k != name} for name in value]
        others += [{**value, name: other} for name in value for other in changed(value[name])]
    return others


@pytest.mark.parametrize("name", ANSWERS)
def test_valid_answers_are_accepted_and_no_invalid_one_is(name: str) -> None:
    formats = jsonschema.Draft202012Validator.FORMAT_CHECKER
    valid = jsonschema.Draft202012Validator(OWN[name], format_checker=formats).is_valid
    of_name, num_invalid = grammar(OWN[name]), 0
    for instance in ANSWERS[name]:
        assert valid(instance) and accepts(of_name, json.dumps(instance, ensure_ascii=False))
        for other in changed(instance)[:150]:
            if not valid(other):
                num_invalid += 1
                text = json.dumps(other, ensure_ascii=False)
                assert not accepts(of_name, text), text
    assert num_invalid >= 5


def test_a_string_that_has_to_be_longer_than_any_answer_can_be_is_refused_by_name() -> None:
    assert MAX_LEAST_CHARS == MAX_LEXER_STATES // 4
    for length in (MAX_LEAST_CHARS + 1, 1e9):
        with pytest.raises(InvalidRequest, match="minLength at #/items is .*; allowed: 16384"):
            schema_grammar({"items": {"type": "string", "minLength": length}}, param="s")
    for length in (0, MAX_LEAST_CHARS, "many"):
        schema_grammar({"type": "string", "minLength": length}, param="s")
