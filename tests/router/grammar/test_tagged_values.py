"""What a schema of parameters between tags may cost whoever reads it."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.errors import InvalidRequest
from router.grammar.tagged_values import tagged_parameters


def recursive(num_branches: int) -> dict[str, Any]:
    """A parameter that leads to itself in so many ways: 2 of them are 2**32 paths of 32 steps."""
    branches = [{"$ref": "#/$defs/A"}] * num_branches
    return {
        "type": "object",
        "$defs": {"A": {"anyOf": [*branches, {"type": "string", "enum": ["x", "y"]}]}},
        "properties": {"a": {"$ref": "#/$defs/A"}},
    }


def test_a_schema_that_leads_to_itself_is_looked_at_once() -> None:
    [term] = tagged_parameters(recursive(60), {"a": frozenset({"string"})}, param="tools")
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
        tagged_parameters(schema, kinds, param="tools")
