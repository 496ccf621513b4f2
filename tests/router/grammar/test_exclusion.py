"""Alternatives of `oneOf` are told apart in a number of steps that has an end."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from cluster.errors import InvalidRequest
from router.grammar.exclusion import Exclusions
from router.grammar.json_schema import checked_schema
from router.grammar.schema_budget import SchemaBudget
from router.grammar.structural_tag import structural_tag_grammar


def recursive(num_alternatives: int, *, tag: str = "t") -> dict[str, Any]:
    """Alternatives that share properties of a class that holds itself sixteen times."""
    names = [f"p{i}" for i in range(16)]
    to_c = {"$ref": "#/$defs/C"}
    c = {"type": "object", "required": names, "properties": dict.fromkeys(names, to_c)}
    kinds = [
        {
            "type": "object",
            "required": ["a", "b", "c", tag],
            "properties": {"a": to_c, "b": to_c, "c": to_c, tag: {"const": i}},
        }
        for i in range(num_alternatives)
    ]
    return {"$defs": {"C": c}, "oneOf": kinds}


def steps_of(schema: Any) -> int:
    budget = SchemaBudget("schema")
    checked_schema(schema, param="schema", budget=budget)
    return budget.comparisons.num


def test_a_discriminator_behind_recursive_properties_is_found_at_once() -> None:
    assert steps_of(recursive(8)) < 400


def test_recursive_schemas_that_nothing_tells_apart_are_given_up_soon() -> None:
    schema = recursive(2)
    del schema["oneOf"][1]["properties"]["t"]
    budget = SchemaBudget("schema")
    with pytest.raises(InvalidRequest, match="oneOf"):
        checked_schema(schema, param="schema", budget=budget)
    assert budget.comparisons.num < 1000


def test_32_alternatives_whose_last_property_tells_them_apart_are_followed() -> None:
    names = [f"p{i}" for i in range(15)]
    kinds = [
        {
            "type": "object",
            "required": [*names, "kind"],
            "properties": dict.fromkeys(names, {"type": "string"}) | {"kind": {"const": i}},
        }
        for i in range(32)
    ]
    assert steps_of({"oneOf": kinds}) < 2500
    by_reference = {str(i): {"const": i} for i in range(32)}
    for i, kind in enumerate(kinds):
        kind["properties"]["kind"] = {"$ref": f"#/$defs/{i}"}
    assert steps_of({"$defs": by_reference, "oneOf": kinds}) < 2500


def test_alternatives_are_counted_before_pairs_are_made_of_them() -> None:
    many = {"oneOf": [{"const": i} for i in range(256)]}
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="32640 pairs in oneOf"):
            checked_schema(many, param="schema")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000  # as many pairs take over two million


def test_long_enums_are_compared_as_sets() -> None:
    def enum(start: int) -> dict[str, Any]:
        return {"enum": list(range(start, start + 2000))}

    assert steps_of({"oneOf": [enum(0), enum(2000)]}) < 3 * 2000 + 100


def test_who_asks_for_more_steps_than_there_are_is_refused_by_name() -> None:
    long = [{"$ref": f"#/$defs/{i}"} for i in range(3)]
    defs = {str(i): {"enum": list(range(3000 * i, 3000 * (i + 1)))} for i in range(3)}
    nested = {"oneOf": long}
    schema = {"$defs": defs, "properties": {str(i): nested for i in range(8)}}
    with pytest.raises(InvalidRequest, match="comparisons of alternatives of oneOf") as refused:
        checked_schema(schema, param="schema")
    assert refused.value.param == "schema"


def test_schemas_of_one_structural_tag_share_the_steps() -> None:
    values = list(range(300))
    defs = {"a": {"enum": values}, "b": {"enum": [-1 - value for value in values]}}
    one = {"$defs": defs, "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}
    structures = [{"begin": f"<{i}>", "schema": one, "end": ""} for i in range(30)]
    with pytest.raises(InvalidRequest, match="comparisons"):
        structural_tag_grammar({"triggers": ["<"], "structures": structures}, param="tag")


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ({"const": {"a": [1]}}, {"const": {"a": [2]}}, True),
        ({"const": {"a": [1], "b": 2}}, {"const": {"b": 2.0, "a": [1.0]}}, False),
        ({"enum": [[1], 2]}, {"enum": [{}, "2"]}, True),
        ({"const": []}, {"const": {}}, True),
    ],
)
def test_constants_are_compared_as_values(first: Any, second: Any, apart: bool) -> None:
    exclusions = Exclusions(lambda schema: schema, SchemaBudget("schema"))
    assert exclusions.exclude(first, second) is apart
    assert exclusions.exclude(second, first) is apart


def test_what_lies_too_deep_in_a_constant_tells_nothing() -> None:
    def deep(value: Any) -> dict[str, Any]:
        for _ in range(500):
            value = [value]
        return {"const": value}

    exclusions = Exclusions(lambda schema: schema, SchemaBudget("schema"))
    assert exclusions.exclude(deep(1), deep(2)) is False
