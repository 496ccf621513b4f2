"""How each family's calls are written, as pieces of Lark. What it writes, that family's reader in
router/tools reads as the same calls.

| family | one call |
|---|---|
| hermes | `<tool_call>{"name": N, "arguments": {..}}</tool_call>` |
| llama3_json | `{"name": N, "parameters": {..}}` |
| mistral | `[TOOL_CALLS]N[ARGS]{..}` where `[ARGS]` is a token, else `[TOOL_CALLS][{..}, {..}]` |
| deepseek_v3 | in a list of calls, with a block of json (V3) or without one (V3.1) |
| qwen3_coder | `<tool_call><function=N><parameter=K>V</parameter></function></tool_call>` |
| pythonic | `[N(K=V, K=V), N()]` |
| gemma | `<start_function_call>call:N{K:<escape>V<escape>,K:V}<end_function_call>` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from router.grammar.gemma_values import GemmaValues, gemma_rules
from router.grammar.json_schema import checked_in_lark
from router.grammar.lark_terms import SPACES, Terms, quoted
from router.grammar.python_arguments import python_arguments, python_rules
from router.grammar.schema_budget import SchemaBudget
from router.grammar.tagged_values import TEXT_RULES, tagged_parameters
from router.tools.family_words import (
    ARGS,
    CALL_BEGIN,
    CALL_END,
    CALL_ID,
    CALLS_END,
    FENCE,
    FENCE_END,
    FENCED,
    FUNCTION,
    FUNCTION_CALL_END,
    FUNCTION_END,
    PYTHON_END,
    SEPARATOR,
    TOOL_CALL_END,
)
from router.tools.formats import (
    DEEPSEEK_V3,
    FORMATS,
    GEMMA,
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    PYTHONIC,
    QWEN3_CODER,
    SHORT_ID_CHARS,
    ToolFormat,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One that may be called. `param` names its schema in messages."""

    name: str
    schema: dict[str, Any]
    kinds: Mapping[str, frozenset[str]]
    """By parameter: what its raw text is read as, see router/tools/tagged_calls.py."""
    param: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSyntax:
    """Of one family and vocabulary: `opening call (between call)* closing`, after the family's
    trigger."""

    opening: str = ""
    calls: Sequence[str]
    """One term for each function."""
    between: str | None = None
    """None: a section has one call, and sections follow each other."""
    closing: str = ""
    rules: Sequence[str] = ()
    """That its calls are made of."""


_CALL_ID = f"/[a-zA-Z0-9]{{{SHORT_ID_CHARS}}}/"
SyntaxMaker = Callable[[Sequence[Function], Terms, SchemaBudget], CallSyntax]


def syntax_of(
    tools: ToolFormat, functions: Sequence[Function], terms: Terms, budget: SchemaBudget
) -> CallSyntax:
    """Of functions whose schemas were checked. `budget`: for what is looked at and written beside
    that. Raises InvalidRequest for a schema that cannot be followed."""
    return _MAKERS[tools.name](functions, terms, budget)


def _arguments(function: Function) -> str:
    return checked_in_lark(function.schema, param=function.param)


def _object(function: Function, key: str) -> str:
    head = f'{{"name": {quoted(function.name)}, "{key}": '
    return f'{quoted(head)} {_arguments(function)} "}}"'


def _hermes(functions: Sequence[Function], terms: Terms, budget: SchemaBudget) -> CallSyntax:
    return CallSyntax(
        opening=SPACES,
        calls=[_object(each, "arguments") for each in functions],
        closing=f"{SPACES} {terms.word(TOOL_CALL_END)}",
    )


def _llama3_json(functions: Sequence[Function], terms: Terms, budget: SchemaBudget) -> CallSyntax:
    return CallSyntax(
        opening=SPACES,
        calls=[_object(each, "parameters") for each in functions],
        between=f'{SPACES} ";" {SPACES}',
    )


def _mistral(functions: Sequence[Function], terms: Terms, budget: SchemaBudget) -> CallSyntax:
    if terms.has(ARGS):
        separator = terms.word(ARGS)
        if terms.has(CALL_ID):  # version 11 writes one, later ones with the same words do not
            separator = f"({terms.word(CALL_ID)} {_CALL_ID})? {separator}"
        calls = [f"{quoted(each.name)} {separator} {_arguments(each)}" for each in functions]
        return CallSyntax(calls=calls)
    return CallSyntax(
        opening=f'{SPACES} "["',
        calls=[_object(each, "arguments") for each in functions],
        between=f'"," {SPACES}',
        closing='"]"',
    )


def _deepseek_v3(functions: Sequence[Function], terms: Terms, budget: SchemaBudget) -> CallSyntax:
    return CallSyntax(
        calls=[_deepseek_call(each, f"args_{i}", terms) for i, each in enumerate(functions)],
        between=SPACES,
        closing=terms.word(CALLS_END),
        rules=[f"args_{i}: {_arguments(each)}" for i, each in enumerate(functions)],
    )


def _deepseek_call(function: Function, arguments: str, terms: Terms) -> str:
    """In either form: the model has learnt one of them. `arguments`: the name of their rule."""
    begin, separator = terms.word(CALL_BEGIN), terms.word(SEPARATOR)
    name, end = quoted(function.name), terms.word(CALL_END)
    before, behind = quoted(f"\n{FENCE}\n"), quoted(f"\n{FENCE_END}")
    fenced = f"{quoted(FENCED)} {separator} {name} {before} {arguments} {behind}"
    if function.name == FENCED:
        return f"{begin} {fenced} {end}"
    return f"{begin} ({fenced} | {name} {separator} {arguments}) {end}"


def _qwen3_coder(functions: Sequence[Function], terms: Terms, budget: SchemaBudget) -> CallSyntax:
    return CallSyntax(
        opening=SPACES,
        calls=[_tagged(each, terms, budget) for each in functions],
        closing=f"{SPACES} {terms.word(TOOL_CALL_END)}",
        rules=TEXT_RULES,
    )


def _tagged(function: Function, terms: Terms, budget: SchemaBudget) -> str:
    parameters = tagged_parameters(
        function.schema, function.kinds, param=function.param, budget=budget
    )
    opening = f'{terms.word(FUNCTION)} {quoted(f"{function.name}>")} "\\n"'
    return " ".join([opening, *parameters, quoted(FUNCTION_END)])


def _pythonic(functions: Sequence[Function], terms: Terms, budget: SchemaBudget) -> CallSyntax:
    calls, rules = list[str](), python_rules()
    for index, each in enumerate(functions):
        inner, more = python_arguments(
            each.schema, f"args_{index}", param=each.param, budget=budget
        )
        calls.append(f'({quoted(each.name + "(")} {inner} ")")')
        rules += more
    return CallSyntax(
        opening='"["',
        calls=calls,
        between='", "',
        closing=f'"]" ({terms.word(PYTHON_END)})?',
        rules=rules,
    )


def _gemma(functions: Sequence[Function], terms: Terms, budget: SchemaBudget) -> CallSyntax:
    calls, rules = list[str](), gemma_rules(terms)
    for index, each in enumerate(functions):
        values = GemmaValues(each.schema, terms, f"args_{index}", param=each.param, budget=budget)
        calls.append(f"{quoted(f'call:{each.name}')} {values.arguments}")
        rules += values.rules
    return CallSyntax(
        calls=calls,
        closing=terms.word(FUNCTION_CALL_END),
        rules=rules,
    )


_MAKERS: Mapping[str, SyntaxMaker] = {
    HERMES.name: _hermes,
    QWEN3_CODER.name: _qwen3_coder,
    LLAMA3_JSON.name: _llama3_json,
    MISTRAL.name: _mistral,
    DEEPSEEK_V3.name: _deepseek_v3,
    PYTHONIC.name: _pythonic,
    GEMMA.name: _gemma,
}
if unwritten := FORMATS.keys() - _MAKERS.keys():
    raise LookupError(f"router/grammar/call_syntax.py: no syntax of {sorted(unwritten)}")
