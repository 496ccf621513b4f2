"""Parameters between tags, one by one: a text as it is, everything else as JSON.

Which of the two a value is read as, its schema's types say (separate_values.py: which schemas are
followed). Of a function that takes anything, any name and text may come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from router.grammar.json_schema import checked_in_lark, target_of
from router.grammar.lark_terms import ANY, quoted, regex
from router.grammar.limits import refuse
from router.grammar.schema_budget import SchemaBudget
from router.grammar.separate_values import WORDS, Property, properties_of
from router.tools.family_words import PARAMETER, PARAMETER_END

TEXT_RULES = (
    "raw_text[lazy]: RAW_TEXT",
    f"RAW_TEXT: /{ANY}{regex(PARAMETER_END)}/",
    rf"PARAMETER: /{PARAMETER}[A-Za-z0-9_.\-]{{1,64}}>\n/",
)
_ANYTHING = r'(PARAMETER raw_text "\n")*'
MAX_NAME_CHARS = 256


def tagged_parameters(
    schema: dict[str, Any],
    kinds: Mapping[str, frozenset[str]],
    *,
    param: str,
    budget: SchemaBudget,
) -> list[str]:
    """Terms, in order, of a checked schema. `budget`: of all functions of the request. Raises
    InvalidRequest naming what cannot be written so."""
    properties = properties_of(schema, param=param, where="parameters have tags")
    if properties is None:
        return [_ANYTHING]
    texts, terms = _Texts(schema, param, budget), list[str]()
    for each in properties:
        term = _parameter(each, texts, kinds.get(each.name, frozenset()))
        terms.append(term + ("" if each.is_required else "?"))
        budget.written_bytes.take(len(term), param)  # each has the definitions that it may need
    return terms


def _parameter(parameter: Property, texts_of: _Texts, kinds: frozenset[str]) -> str:
    name, schema, param = parameter.name, parameter.schema, texts_of.param
    if ">" in name or len(name) > MAX_NAME_CHARS:
        refuse(f"{param}: the name {name[:80]!r} cannot stand in a tag", param)
    opening, closing = quoted(f"{PARAMETER}{name}>\n"), quoted(f"\n{PARAMETER_END}\n")
    if kinds and "string" not in kinds:
        value = checked_in_lark(parameter.by_itself, param=param)
        return f"({opening} {value} {closing})"
    if texts_of.takes_any(schema, set()):
        return f'({opening} raw_text "\\n")'
    texts = [text for text in texts_of.listed(schema, set()) if _is_kept(text, kinds)]
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


@dataclass(slots=True)
class _Texts:
    """What properties' schemas say of texts."""

    root: dict[str, Any]
    param: str
    budget: SchemaBudget
    found: dict[str, Any] = field(default_factory=dict)
    """By target of `$ref`."""

    def takes_any(self, schema: Any, seen: set[int]) -> bool:
        """`seen`: schemas that were asked before: each once, however often it is led to."""
        schema = self._target(schema)
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
        return branches is None or any(self.takes_any(each, seen) for each in branches)

    def listed(self, schema: Any, seen: set[int]) -> list[str]:
        """The only ones that it takes, as far as it lists them."""
        schema = self._target(schema)
        if not isinstance(schema, dict) or id(schema) in seen:
            return []
        seen.add(id(schema))
        known = schema.keys() - WORDS - {"type"}
        if known == {"enum"} and isinstance(schema["enum"], list):
            return [each for each in schema["enum"] if isinstance(each, str)]
        if known == {"const"}:
            return [schema["const"]] if isinstance(schema["const"], str) else []
        if known == {"anyOf"} and isinstance(schema["anyOf"], list):
            return [text for each in schema["anyOf"] for text in self.listed(each, seen)]
        return []

    def _target(self, schema: Any) -> Any:
        """One more is looked at. Raises InvalidRequest for too many."""
        self.budget.texts.take(1, self.param)
        return target_of(schema, self.root, self.found)
