"""What a schema of parameters between tags may cost whoever reads it."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.errors import InvalidRequest
from router.grammar.limits import MAX_PROPERTIES
from router.grammar.schema_budget import Allowance, SchemaBudget
from router.grammar.tagged_values import tagged_parameters
from router.tools.formats import FORMATS
from tests.router.grammar.calling import grammars


def recursive(num_branches: int) -> dict[str, Any]:
    """A parameter that leads to itself in so many ways: 2 of them are 2**32 paths of 32 steps."""
    branches = [{"$ref": "#/$defs/A"}] * num_branches
    return {
        "type": "object",
        "$defs": {"A": {"anyOf": [*branches, {"type": "string", "enum": ["x", "y"]}]}},
        "properties": {"a": {"$ref": "#/$defs/A"}},
    }


def test_a_schema_that_leads_to_itself_is_looked_at_once() -> None:
    [term] = tagged_parameters(
        recursive(60), {"a": frozenset({"string"})}, param="tools", budget=SchemaBudget("tools")
    )
    assert '"x"' in term and '"y"' in term


def test_definitions_are_not_written_for_each_of_many_parameters() -> None:
    names = [f"p{i}" for i in range(400)]
    leaf = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    schema = {
        "type": "object",
        "$defs": {f"d{i}": leaf for i in range(120)},
        "properties": {name: {"$ref": f"#/$defs/d{i % 120}"} for i, name in enumerate(names)},
    }
    kinds = dict.fromkeys(names, frozenset({"object"}))
    with pytest.raises(InvalidRequest, match="bytes of parameters; allowed: 32768"):
        tagged_parameters(schema, kinds, param="tools", budget=SchemaBudget("tools"))


class Unsearched(list[str]):
    """A list in which nobody looks for a name from its beginning."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError(f"{name} is looked for among {len(self)} names")


@pytest.mark.parametrize("family", FORMATS)
def test_names_that_are_required_are_limited_and_looked_up_at_once(family: str) -> None:
    required = Unsearched(["a"] * MAX_PROPERTIES)
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": required}
    assert grammars(family, schemas={"f": schema})
    required.append("a")
    with pytest.raises(InvalidRequest, match="has 513 names in #/required; allowed") as refused:
        grammars(family, schemas={"f": schema})
    assert refused.value.param == "tools[0]"


def test_a_required_name_that_is_no_text_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": [["a"]]}
    for family in ("qwen3_coder", "pythonic", "gemma"):
        with pytest.raises(InvalidRequest, match="no property"):
            grammars(family, schemas={"f": schema})


def functions_with(schema: dict[str, Any], *, num_functions: int, name: str) -> dict[str, Any]:
    """Each has 50 parameters that lead to the schema, by a definition."""
    refs = {f"{name}{i}": {"$ref": "#/$defs/d"} for i in range(50)}
    whole = {"type": "object", "properties": refs, "$defs": {"d": schema}}
    return {f"f{i}": whole for i in range(num_functions)}


@pytest.mark.parametrize("family", ["qwen3_coder", "pythonic"])
def test_parameters_of_all_functions_are_written_within_the_limit_of_a_grammar(family: str) -> None:
    """Each has the definitions of its function: 50 times 88 schemas, for each of 7 functions."""
    wide = {"type": "integer", "anyOf": [True] * 85}
    schemas = functions_with(wide, num_functions=7, name="p")
    words = "bytes of parameters, with those before it in the request; allowed: 32768"
    with pytest.raises(InvalidRequest, match=words) as refused:
        grammars(family, schemas=schemas)
    assert refused.value.param == "tools[1]"


def test_the_schemas_of_functions_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    num_looked_at = 0
    take = Allowance.take

    def counted(allowance: Allowance, num: int, param: str) -> None:
        nonlocal num_looked_at
        num_looked_at += num * (allowance.what == "schemas")
        take(allowance, num, param)

    monkeypatch.setattr(Allowance, "take", counted)
    schemas = functions_with({"type": "integer"}, num_functions=2, name="p")
    for family in FORMATS:
        num_looked_at = 0
        assert grammars(family, schemas=schemas)
        assert num_looked_at <= 2 * 52 + 5, family


def test_texts_of_all_functions_are_looked_for_within_one_budget() -> None:
    branches = {"anyOf": [{"type": "integer"}] * 30 + [{"type": "string", "enum": ["x"]}]}
    schemas = functions_with(branches, num_functions=2, name="p")
    assert grammars("qwen3_coder", schemas=dict([*schemas.items()][:1]))
    with pytest.raises(InvalidRequest, match="alternatives, with those before it") as refused:
        grammars("qwen3_coder", schemas=schemas)
    assert refused.value.param == "tools[1]"


def test_what_refs_of_all_functions_lead_to_is_followed_within_one_budget() -> None:
    """Each of 18 lead to what lies in the next."""
    inner: dict[str, Any] = {"type": "object", "properties": {}}
    place, refs = "#/properties/s", dict[str, Any]()
    for depth in range(18):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
        refs[f"r{depth}"] = {"$ref": place}
        place += "/properties/a"
    schema = {"type": "object", "properties": {"s": inner, **refs}, "required": ["s"]}
    assert grammars("gemma", schemas={"f": schema})
    with pytest.raises(InvalidRequest, match="lead to, with those before it") as refused:
        grammars("gemma", schemas={f"f{i}": schema for i in range(6)})
    assert refused.value.param == "tools[4]"


def test_a_single_function_is_told_of_no_others() -> None:
    many = {"anyOf": [{"properties": {f"a{i}": True for i in range(500)}}] * 3}
    with pytest.raises(InvalidRequest, match=r"has 1025 schemas; allowed"):
        grammars("hermes", schemas={"f": {"type": "object", "properties": {"p": many}}})
