"""Which JSON types the parameters of tools may have: what their raw text is read by."""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.tool_schema import FunctionDefinition, ToolDefinition
from router.grammar.json_schema import target_of
from router.tools.tagged_calls import Kinds

MAX_KEPT_BYTES = 64 * 1024
"""Of what is needed of tools once a large body's prompt is made: 0.7 ms of the event loop."""


def kinds_of(functions: list[FunctionDefinition]) -> Kinds:
    """See Kinds."""
    return {each.name: _kinds(each.parameters or {}) for each in functions}


def compact(tools: list[ToolDefinition] | None, *, with_types: bool) -> list[ToolDefinition] | None:
    """What is needed of them once the prompt is made: names, and `with_types` those of parameters
    that are not just texts."""
    if not tools:
        return tools
    functions = [tool.function for tool in tools if tool.function is not None]
    return [
        ToolDefinition(
            "function",
            FunctionDefinition(each.name, None, _types(each) if with_types else None),
        )
        for each in functions
    ]


def kept_bytes(tools: list[ToolDefinition] | None) -> int:
    """That `compact` tools have as JSON. Raises InvalidRequest for too many."""
    if not tools:
        return 0
    num_bytes = len(msgspec.json.encode(tools))
    if num_bytes > MAX_KEPT_BYTES:
        raise InvalidRequest(
            f"tools has {num_bytes} bytes of names and of types other than string; allowed: "
            f"{MAX_KEPT_BYTES}",
            param="tools",
        )
    return num_bytes


def _kinds(schema: dict[str, Any]) -> dict[str, frozenset[str]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    found: dict[str, Any] = {}
    return {name: _types_in(each, schema, found) for name, each in properties.items()}


def _types_in(schema: Any, root: dict[str, Any], found: dict[str, Any]) -> frozenset[str]:
    """Of one parameter; of a choice of schemas all of theirs."""
    schema = target_of(schema, root, found)
    if not isinstance(schema, dict):
        return frozenset()
    stated = schema.get("type")
    types = {stated} if isinstance(stated, str) else set()
    if isinstance(stated, list):
        types |= {each for each in stated if isinstance(each, str)}
    for key in ("anyOf", "oneOf"):
        for each in schema[key] if isinstance(schema.get(key), list) else ():
            each = target_of(each, root, found)
            if isinstance(each, dict) and isinstance(each.get("type"), str):
                types.add(each["type"])
    if not types and isinstance(schema.get("enum"), list):
        types |= {"string" for each in schema["enum"] if isinstance(each, str)}
    return frozenset(types)


def _types(function: FunctionDefinition) -> dict[str, Any]:
    kinds = _kinds(function.parameters or {})
    types = {name: sorted(types) for name, types in kinds.items() if types - {"string"}}
    return {
        "properties": {
            name: {"type": each[0] if len(each) == 1 else each} for name, each in types.items()
        }
    }
