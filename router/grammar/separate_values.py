"""The parameters of a function where each value is written by itself, and is no part of one JSON
object: between tags, as Python's keyword arguments, or in a syntax that is no JSON.

So only schemas are followed of which each property can be taken alone: an object with `properties`,
in their order, and nothing beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from router.grammar.json_schema import checked_in_lark
from router.grammar.limits import refuse

DEFS = ("$defs", "definitions")
WORDS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "$schema", "$id"}
)
"""What says nothing of values."""
_OF_OBJECTS = WORDS | {"type", "properties", "required", "additionalProperties", *DEFS}


@dataclass(frozen=True, slots=True)
class Property:
    """One parameter."""

    name: str
    schema: Any
    by_itself: Any
    """The schema with the definitions, where it may need any."""
    is_required: bool


def properties_of(schema: dict[str, Any], *, param: str, where: str) -> list[Property] | None:
    """Of a checked schema, in order; None: any at all, with any values. Raises InvalidRequest
    naming what cannot be written so; `where` says how they are written, for messages."""
    if beside := sorted(schema.keys() - _OF_OBJECTS):
        refuse(f"{param}: `{beside[0]}` is not supported where {where}", param)
    _check_refs(schema, param)
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        refuse(f"{param}: properties must be an object, and required a list", param)
    needed = set(map(str, required))
    if missing := [name for name in map(str, required) if name not in properties]:
        refuse(f"{param}: {str(missing[0])[:80]!r} is required, but no property", param)
    checked_in_lark(schema, param=param)  # within the limit as a whole, and so each part
    others = schema.get("additionalProperties", True)
    if "properties" not in schema and (others is True or others == {}):
        return None
    return [
        Property(name, each, _by_itself(each, schema), name in needed)
        for name, each in properties.items()
    ]


def _by_itself(schema: Any, root: dict[str, Any]) -> Any:
    if b'"$ref"' not in msgspec.json.encode(schema):
        return schema
    return {**schema, **{key: root[key] for key in DEFS if key in root}}


def _check_refs(value: Any, param: str) -> None:
    """Each property is a schema of its own: what leads elsewhere leads nowhere there."""
    if isinstance(value, list):
        for each in value:
            _check_refs(each, param)
    elif isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str) and not target.startswith(("#/$defs/", "#/definitions/")):
            refuse(f"{param}: `$ref` {target[:80]!r} leads to no definition", param)
        for each in value.values():
            _check_refs(each, param)
