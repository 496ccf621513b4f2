"""vLLM's `structured_outputs`: one constraint, and how its JSON is written. Both doors read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar
from router.grammar.json_schema import AS_IT_COMES, JsonOptions, schema_grammar
from router.grammar.lark import choice_grammar, json_object_grammar, lark_grammar, regex_grammar
from router.grammar.limits import check_size, refuse
from router.grammar.schema_budget import Allowance
from router.grammar.structural_tag import structural_tag_grammar

CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of the first six."""

    json: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    """Lark, in llguidance's dialect."""
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: str | None = None

    @property
    def options(self) -> JsonOptions:
        """How JSON is written."""
        return JsonOptions(
            disable_any_whitespace=bool(self.disable_any_whitespace),
            disable_additional_properties=bool(self.disable_additional_properties),
            whitespace_pattern=self.whitespace_pattern or None,
        )


def grammar_of(
    asked: StructuredOutputs, *, param: str, comparisons: Allowance | None = None
) -> Grammar:
    """Raises InvalidRequest, naming the constraint at fault behind `param`. `comparisons`: see
    `budget_of`."""
    given = [name for name in CONSTRAINTS if getattr(asked, name) not in (None, "")]
    if asked.json_object is False:
        given.remove("json_object")
    if len(given) != 1:
        named = " and ".join(given) or "none"
        refuse(f"{param} needs exactly one of {', '.join(CONSTRAINTS)}; it has {named}", param)
    name = given[0]
    _check_options(asked, name, param)
    return _BUILDERS[name](asked, f"{param}.{name}", comparisons)


def _check_options(asked: StructuredOutputs, name: str, param: str) -> None:
    """What says how JSON is written says nothing of other grammars."""
    options = asked.options
    if name not in ("json", "json_object") and options != AS_IT_COMES:
        refuse(f"{param}: whitespace and properties are options of json, not of {name}", param)
    if options.disable_any_whitespace and options.whitespace_pattern:
        refuse(f"{param}: disable_any_whitespace leaves no whitespace_pattern", param)


def json_value(text: str, param: str) -> Any:
    """JSON in a text. Raises InvalidRequest."""
    check_size(text, param)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{param} is no JSON: {error}", param=param) from None


def _json(asked: StructuredOutputs, param: str, comparisons: Allowance | None) -> Grammar:
    schema = json_value(asked.json, param) if isinstance(asked.json, str) else asked.json
    return schema_grammar(schema, param=param, options=asked.options, comparisons=comparisons)


def _structural_tag(asked: StructuredOutputs, param: str, comparisons: Allowance | None) -> Grammar:
    tag = asked.structural_tag
    plain = json_value(tag, param) if isinstance(tag, str) else tag
    return structural_tag_grammar(plain, param=param, comparisons=comparisons)


_BUILDERS: dict[str, Callable[[StructuredOutputs, str, Allowance | None], Grammar]] = {
    "json": _json,
    "regex": lambda asked, param, _: regex_grammar(asked.regex or "", param=param),
    "choice": lambda asked, param, _: choice_grammar(asked.choice or [], param=param),
    "grammar": lambda asked, param, comparisons: lark_grammar(
        asked.grammar or "", param=param, comparisons=comparisons
    ),
    "json_object": lambda asked, param, _: json_object_grammar(param=param, options=asked.options),
    "structural_tag": _structural_tag,
}
