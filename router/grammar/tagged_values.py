"""Parameters between tags, one by one: a text as it is, everything else as JSON.

Which of the two a value is read as, its schema's types say (separate_values.py: which schemas are
followed). Of a function that takes anything, any name and text may come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    if texts_of.takes_any(schema):
        return f'({opening} raw_text "\\n")'
    texts = [text for text in texts_of.listed(schema) if _is_kept(text, kinds)]
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

    def takes_any(self, schema: Any) -> bool:
        """It, or one of the branches that it leads to."""
        return any(
            each is True or (isinstance(each, dict) and _is_any_text(each))
            for each in self._led_to(schema, _branches_beside_type)
        )

    def listed(self, schema: Any) -> list[str]:
        """The only ones that it takes, as far as it lists them."""
        texts = list[str]()
        for each in self._led_to(schema, _branches_alone):
            known = each.keys() - WORDS - {"type"} if isinstance(each, dict) else set()
            if known == {"enum"} and isinstance(each["enum"], list):
                texts += [text for text in each["enum"] if isinstance(text, str)]
            elif known == {"const"} and isinstance(each["const"], str):
                texts.append(each["const"])
        return texts

    def _led_to(
        self, schema: Any, branches: Callable[[dict[str, Any]], list[Any]]
    ) -> Iterator[Any]:
        """It and all that it leads to, in order, each once: a chain of `$ref`s and branches may be
        longer than calls can be nested. Raises InvalidRequest for too many."""
        seen, ahead = set[int](), [schema]
        while ahead:
            each = self._target(ahead.pop())
            if isinstance(each, dict):
                if id(each) in seen:
                    continue
                seen.add(id(each))
                ahead += reversed(branches(each))
            yield each

    def _target(self, schema: Any) -> Any:
        """One more is looked at. Raises InvalidRequest for too many."""
        self.budget.texts.take(1, self.param)
        return target_of(schema, self.root, self.found)


def _is_any_text(schema: dict[str, Any]) -> bool:
    return _may_be_text(schema) and "anyOf" not in schema


def _may_be_text(schema: dict[str, Any]) -> bool:
    """As far as its own words say."""
    types = schema.get("type", "string")
    is_named = "string" in (types if isinstance(types, list) else [types])
    return is_named and not schema.keys() - WORDS - {"type", "anyOf"}


def _branches_beside_type(schema: dict[str, Any]) -> list[Any]:
    return _branches_of(schema) if _may_be_text(schema) else []


def _branches_alone(schema: dict[str, Any]) -> list[Any]:
    return _branches_of(schema) if schema.keys() - WORDS - {"type"} == {"anyOf"} else []


def _branches_of(schema: dict[str, Any]) -> list[Any]:
    """What a `$ref` leads to may be no schema."""
    branches = schema.get("anyOf")
    return branches if isinstance(branches, list) else []
