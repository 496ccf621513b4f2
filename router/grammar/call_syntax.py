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

from router.grammar.call_terms import Terms, quoted
from router.grammar.gemma_values import GemmaValues, gemma_rules
from router.grammar.json_schema import json_in_lark
from router.grammar.python_arguments import python_arguments, python_rules
from router.grammar.tagged_values import TEXT_RULES, tagged_parameters

SPACES = "WS"
"""A term of every grammar of calls: a little white space, or none."""


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
    """Of one family and vocabulary: `opening call (between call)* closing`."""

    trigger: str
    """The word that begins a section; of bare families it may be left out at the beginning."""
    opening: str = ""
    """After the trigger."""
    calls: Sequence[str]
    """One term for each function."""
    between: str | None = None
    """None: a section has one call, and sections follow each other."""
    closing: str = ""
    markers: tuple[str, ...]
    """What begins calls where it stands in text."""
    rules: Sequence[str] = ()
    """That its calls are made of."""
    bare: str | None = None
    """The character with which an answer that is nothing but calls begins."""


SyntaxMaker = Callable[[Sequence[Function], Terms], CallSyntax]


BARE_FAMILIES = frozenset({"llama3_json", "pythonic"})
"""Whose calls may begin without a word that nothing else begins with."""


def syntax_of(family: str, functions: Sequence[Function], terms: Terms) -> CallSyntax:
    """`family`: a word of --tool-format. Raises InvalidRequest for a schema that cannot be
    followed."""
    return _MAKERS[family](functions, terms)


def _arguments(function: Function) -> str:
    return json_in_lark(function.schema, param=function.param)


def _object(function: Function, key: str) -> str:
    head = f'{{"name": {quoted(function.name)}, "{key}": '
    return f'{quoted(head)} {_arguments(function)} "}}"'


def _hermes(functions: Sequence[Function], terms: Terms) -> CallSyntax:
    return CallSyntax(
        trigger="<tool_call>",
        opening=SPACES,
        calls=[_object(each, "arguments") for each in functions],
        closing=f"{SPACES} {terms.word('</tool_call>')}",
        markers=("<tool_call>",),
    )


def _llama3_json(functions: Sequence[Function], terms: Terms) -> CallSyntax:
    return CallSyntax(
        trigger="<|python_tag|>",
        opening=SPACES,
        calls=[_object(each, "parameters") for each in functions],
        between=f'{SPACES} ";" {SPACES}',
        markers=("<|python_tag|>",),
        bare="{",
    )


def _mistral(functions: Sequence[Function], terms: Terms) -> CallSyntax:
    word = "[TOOL_CALLS]"
    if terms.has("[ARGS]"):
        separator = terms.word("[ARGS]")
        calls = [f"{quoted(each.name)} {separator} {_arguments(each)}" for each in functions]
        return CallSyntax(trigger=word, calls=calls, markers=(word,))
    return CallSyntax(
        trigger=word,
        opening=f'{SPACES} "["',
        calls=[_object(each, "arguments") for each in functions],
        between=f'"," {SPACES}',
        closing='"]"',
        markers=(word,),
    )


_CALLS_BEGIN, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL_BEGIN, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_FENCED = "function"
"""What stands where V3.1 writes the name."""


def _deepseek_v3(functions: Sequence[Function], terms: Terms) -> CallSyntax:
    return CallSyntax(
        trigger=_CALLS_BEGIN,
        calls=[_deepseek_call(each, f"args_{i}", terms) for i, each in enumerate(functions)],
        between=SPACES,
        closing=terms.word(_CALLS_END),
        rules=[f"args_{i}: {_arguments(each)}" for i, each in enumerate(functions)],
        markers=(_CALLS_BEGIN, _CALL_BEGIN),
    )


def _deepseek_call(function: Function, arguments: str, terms: Terms) -> str:
    """In either form: the model has learnt one of them. `arguments`: the name of their rule."""
    begin, separator = terms.word(_CALL_BEGIN), terms.word(_SEPARATOR)
    name, end = quoted(function.name), terms.word(_CALL_END)
    fenced = f'{quoted(_FENCED)} {separator} {name} "\\n```json\\n" {arguments} "\\n```"'
    if function.name == _FENCED:
        return f"{begin} {fenced} {end}"
    return f"{begin} ({fenced} | {name} {separator} {arguments}) {end}"


def _qwen3_coder(functions: Sequence[Function], terms: Terms) -> CallSyntax:
    return CallSyntax(
        trigger="<tool_call>",
        opening=SPACES,
        calls=[_tagged(each, terms) for each in functions],
        closing=f"{SPACES} {terms.word('</tool_call>')}",
        rules=TEXT_RULES,
        markers=("<tool_call>", "<function="),
    )


def _tagged(function: Function, terms: Terms) -> str:
    parameters = tagged_parameters(function.schema, function.kinds, param=function.param)
    opening = f'{terms.word("<function=")} {quoted(f"{function.name}>")} "\\n"'
    return " ".join([opening, *parameters, quoted("</function>")])


def _pythonic(functions: Sequence[Function], terms: Terms) -> CallSyntax:
    calls, rules = list[str](), python_rules()
    for index, each in enumerate(functions):
        inner, more = python_arguments(each.schema, f"args_{index}", param=each.param)
        calls.append(f'({quoted(each.name + "(")} {inner} ")")')
        rules += more
    return CallSyntax(
        trigger="<|python_start|>",
        opening='"["',
        calls=calls,
        between='", "',
        closing=f'"]" ({terms.word("<|python_end|>")})?',
        rules=rules,
        markers=("<|python_start|>",),
        bare="[",
    )


def _gemma(functions: Sequence[Function], terms: Terms) -> CallSyntax:
    calls, rules = list[str](), gemma_rules(terms)
    for index, each in enumerate(functions):
        values = GemmaValues(each.schema, terms, f"args_{index}", param=each.param)
        calls.append(f"{quoted(f'call:{each.name}')} {values.arguments}")
        rules += values.rules
    return CallSyntax(
        trigger="<start_function_call>",
        calls=calls,
        closing=terms.word("<end_function_call>"),
        rules=rules,
        markers=("<start_function_call>",),
    )


_MAKERS: Mapping[str, SyntaxMaker] = {
    "hermes": _hermes,
    "qwen3_coder": _qwen3_coder,
    "llama3_json": _llama3_json,
    "mistral": _mistral,
    "deepseek_v3": _deepseek_v3,
    "pythonic": _pythonic,
    "gemma": _gemma,
}
