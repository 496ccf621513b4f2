"""Parameters between tags, one by one: a text as it is, everything else as JSON.

Which of the two a value is read as, its schema's types say. So only schemas are followed of which
that can be said: an object with `properties`, in their order, and nothing beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from router.grammar.call_terms import ANY, quoted, regex
from router.grammar.json_schema import json_in_lark, target_of
from router.grammar.limits import MAX_GRAMMAR_BYTES, check_at_most, refuse

_END = "</parameter>"
TEXT_RULES = ("raw_text[lazy]: RAW_TEXT", f"RAW_TEXT: /{ANY}{regex(_END)}/")
MAX_NAME_CHARS = 256
_DEFS = ("$defs", "definitions")
_WORDS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "$schema", "$id"}
)
"""What says nothing of values."""
_OF_OBJECTS = _WORDS | {"type", "properties", "required", "additionalProperties", *_DEFS}


def tagged_parameters(
    schema: dict[str, Any], kinds: Mapping[str, frozenset[str]], *, param: str
) -> list[str]:
    """Terms, in order. Raises InvalidRequest naming what cannot be written so."""
    if beside := sorted(schema.keys() - _OF_OBJECTS):
        refuse(f"{param}: `{beside[0]}` is not supported where parameters have tags", param)
    _check_refs(schema, param)
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        refuse(f"{param}: properties must be an object, and required a list", param)
    if missing := [name for name in required if name not in properties]:
        refuse(f"{param}: {str(missing[0])[:80]!r} is required, but no property", param)
    json_in_lark(schema, param=param)  # within the limits as a whole
    terms, num_bytes = list[str](), 0
    for name in properties:
        term = _parameter(name, schema, kinds.get(name, frozenset()), param)
        terms.append(term + _times(name in required))
        num_bytes += len(term)  # each has the definitions that it may need: not all are written
        check_at_most(num_bytes, MAX_GRAMMAR_BYTES, "bytes of parameters", param)
    return terms


def _times(is_required: bool) -> str:
    return "" if is_required else "?"


def _parameter(name: str, root: dict[str, Any], kinds: frozenset[str], param: str) -> str:
    if ">" in name or len(name) > MAX_NAME_CHARS:
        refuse(f"{param}: the name {name[:80]!r} cannot stand in a tag", param)
    opening, closing = quoted(f"<parameter={name}>\n"), quoted(f"\n{_END}\n")
    schema = root["properties"][name]
    if kinds and "string" not in kinds:
        value = json_in_lark(_by_itself(schema, root), param=param)
        return f"({opening} {value} {closing})"
    if _takes_any_text(schema, root, set()):
        return f'({opening} raw_text "\\n")'
    texts = [text for text in _texts_of(schema, root, set()) if _is_kept(text, kinds)]
    if not texts:
        refuse(
            f"{param}: the property {name[:80]!r} is not supported where parameters have tags; "
            "allowed: any string, an enum of strings, and types that are no string",
            param,
        )
    return f"({opening} ({' | '.join(map(quoted, texts))}) {closing})"


def _by_itself(schema: Any, root: dict[str, Any]) -> Any:
    """With the definitions, where it may need any."""
    if b'"$ref"' not in msgspec.json.encode(schema):
        return schema
    return {**schema, **{key: root[key] for key in _DEFS if key in root}}


def _is_kept(text: str, kinds: frozenset[str]) -> bool:
    """It is read as itself."""
    is_null = "null" in kinds and text.strip().lower() in ("null", "none")
    return _END not in text and text != "" and not is_null


def _takes_any_text(schema: Any, root: dict[str, Any], seen: set[int]) -> bool:
    """`seen`: schemas that were asked before: each once, however often it is led to."""
    schema = target_of(schema, root, {})
    if schema is True:
        return True
    if not isinstance(schema, dict) or id(schema) in seen:
        return False
    seen.add(id(schema))
    if schema.keys() - _WORDS - {"type", "anyOf"}:
        return False
    types = schema.get("type", "string")
    if "string" not in (types if isinstance(types, list) else [types]):
        return False
    branches = schema.get("anyOf")
    return branches is None or any(_takes_any_text(each, root, seen) for each in branches)


def _texts_of(schema: Any, root: dict[str, Any], seen: set[int]) -> list[str]:
    """The only ones that it takes, as far as it lists them."""
    schema = target_of(schema, root, {})
    if not isinstance(schema, dict) or id(schema) in seen:
        return []
    seen.add(id(schema))
    known = schema.keys() - _WORDS - {"type"}
    if known == {"enum"} and isinstance(schema["enum"], list):
        return [each for each in schema["enum"] if isinstance(each, str)]
    if known == {"const"}:
        return [schema["const"]] if isinstance(schema["const"], str) else []
    if known == {"anyOf"} and isinstance(schema["anyOf"], list):
        return [text for each in schema["anyOf"] for text in _texts_of(each, root, seen)]
    return []


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
