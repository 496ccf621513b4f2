"""Parameters between tags, one by one: a text as it is, everything else as JSON.

Which of the two a value is read as, its schema's types say (separate_values.py: which schemas are
followed). Of a function that takes anything, any name and text may come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.grammar.json_schema import json_in_lark, target_of
from router.grammar.lark_terms import ANY, quoted, regex
from router.grammar.limits import MAX_GRAMMAR_BYTES, check_at_most, refuse
from router.grammar.separate_values import WORDS, by_itself, properties_of
from router.tools.family_words import PARAMETER, PARAMETER_END

TEXT_RULES = (
    "raw_text[lazy]: RAW_TEXT",
    f"RAW_TEXT: /{ANY}{regex(PARAMETER_END)}/",
    rf"PARAMETER: /{PARAMETER}[A-Za-z0-9_.\-]{{1,64}}>\n/",
)
_ANYTHING = r'(PARAMETER raw_text "\n")*'
MAX_NAME_CHARS = 256


def tagged_parameters(
    schema: dict[str, Any], kinds: Mapping[str, frozenset[str]], *, param: str
) -> list[str]:
    """Terms, in order. Raises InvalidRequest naming what cannot be written so."""
    properties = properties_of(schema, param=param, where="parameters have tags")
    if properties is None:
        return [_ANYTHING]
    terms, num_bytes = list[str](), 0
    for each in properties:
        term = _parameter(each.name, schema, kinds.get(each.name, frozenset()), param)
        terms.append(term + ("" if each.is_required else "?"))
        num_bytes += len(term)  # each has the definitions that it may need: not all are written
        check_at_most(num_bytes, MAX_GRAMMAR_BYTES, "bytes of parameters", param)
    return terms


def _parameter(name: str, root: dict[str, Any], kinds: frozenset[str], param: str) -> str:
    if ">" in name or len(name) > MAX_NAME_CHARS:
        refuse(f"{param}: the name {name[:80]!r} cannot stand in a tag", param)
    opening, closing = quoted(f"{PARAMETER}{name}>\n"), quoted(f"\n{PARAMETER_END}\n")
    schema = root["properties"][name]
    if kinds and "string" not in kinds:
        value = json_in_lark(by_itself(schema, root), param=param)
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


def _is_kept(text: str, kinds: frozenset[str]) -> bool:
    """It is read as itself."""
    is_null = "null" in kinds and text.strip().lower() in ("null", "none")
    return PARAMETER_END not in text and text != "" and not is_null


def _takes_any_text(schema: Any, root: dict[str, Any], seen: set[int]) -> bool:
    """`seen`: schemas that were asked before: each once, however often it is led to."""
    schema = target_of(schema, root, {})
    if schema is True:
        return True
    if not isinstance(schema, dict) or id(schema) in seen:
        return False
    seen.add(id(schema))
    if schema.keys() - WORDS - {"type", "anyOf"}:
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
    known = schema.keys() - WORDS - {"type"}
    if known == {"enum"} and isinstance(schema["enum"], list):
        return [each for each in schema["enum"] if isinstance(each, str)]
    if known == {"const"}:
        return [schema["const"]] if isinstance(schema["const"], str) else []
    if known == {"anyOf"} and isinstance(schema["anyOf"], list):
        return [text for each in schema["anyOf"] for text in _texts_of(each, root, seen)]
    return []
