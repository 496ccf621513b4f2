"""Grammars in Lark, in llguidance's dialect: a client's own, and those that are made of regular
expressions, choices and nothing but JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from llguidance import LLMatcher

from cluster.grammar import Grammar, GrammarKind, has_parts
from router.grammar.json_schema import AS_IT_COMES, JsonOptions, checked_schema, schema_grammar
from router.grammar.limits import (
    MAX_CHOICES_OF_TEXT,
    MAX_LARK_DEPTH,
    MAX_LARK_RULES,
    MAX_LARK_SCHEMAS,
    check_at_most,
    check_size,
    refuse,
)
from router.grammar.schema_budget import Allowance, SchemaBudget, budget_of

_RULE = re.compile(
    r"^[ \t]*[?!]*[A-Za-z_](?:[^:\n\"/]|\"(?:[^\"\\\n]|\\.)*+\"|/(?:[^/\\\n]|\\.)++/)*+:",
    re.MULTILINE,
)
"""A line that begins with a name and has a colon behind it, its attributes' texts and expressions
aside. No two parts of it match the same letters, so that a line is read once."""

_SCHEMA = re.compile(r"%json\s*")
"""What a schema stands behind."""


def lark_grammar(
    text: str,
    *,
    param: str,
    kind: GrammarKind = GrammarKind.LARK,
    comparisons: Allowance | None = None,
) -> Grammar:
    """Raises InvalidRequest; what is wrong in it otherwise, a trial finds.

    `kind`: another one where it was made here, of parts that were checked.
    `comparisons`: see `budget_of`."""
    check_size(text, param)
    check_at_most(len(_RULE.findall(text)), MAX_LARK_RULES, "rules", param)
    _check_depth(text, param)
    if kind is GrammarKind.LARK and "x-guidance" in text:
        refuse(f"{param}: `x-guidance` is not supported in a grammar", param)
    if kind is GrammarKind.LARK:
        _check_schemas(text, budget_of(param, comparisons))
    if has_parts(text):
        refuse(f"{param} is no Lark grammar: it has no rule `start`", param)
    return Grammar(text, kind, param)


def regex_grammar(pattern: str, *, param: str) -> Grammar:
    """The whole answer matches it, with or without `^` and `$`."""
    check_size(pattern, param)
    whole = pattern.removeprefix("^")
    if whole.endswith("$") and not whole.endswith("\\$"):
        whole = whole[:-1]
    text = LLMatcher.grammar_from_regex(whole)
    return Grammar(check_size(text, param), GrammarKind.REGEX, param)


def choice_grammar(choices: Sequence[str], *, param: str) -> Grammar:
    """The answer is one of these texts."""
    if not choices:
        refuse(f"{param} is empty; name at least one text", param)
    check_at_most(len(choices), MAX_CHOICES_OF_TEXT, "choices", param)
    text = "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    return Grammar(check_size(text, param), GrammarKind.CHOICE, param)


def choices_in(grammar: Grammar) -> list[str]:
    """The inverse of `choice_grammar`."""
    decoder, found = json.JSONDecoder(), list[str]()
    end = grammar.text.index("start: ") + len("start: ")
    while end < len(grammar.text):
        choice, end = decoder.raw_decode(grammar.text, end)
        found.append(choice)
        end += len(" | ")
    return found


def json_object_grammar(*, param: str, options: JsonOptions = AS_IT_COMES) -> Grammar:
    """Any object."""
    anything: dict[str, Any] = {"type": "object"}
    return schema_grammar(anything, param=param, kind=GrammarKind.JSON_OBJECT, options=options)


def _check_schemas(text: str, budget: SchemaBudget) -> None:
    """Those that stand in a client's own grammar, by what they mean and not by how their letters
    are written. What is no JSON there, a trial refuses."""
    param, decoder = budget.param, json.JSONDecoder()
    places = [found.end() for found in _SCHEMA.finditer(text)]
    check_at_most(len(places), MAX_LARK_SCHEMAS, "places of %json", param)
    for place in places:
        try:
            schema, _end = decoder.raw_decode(text, place)
        except ValueError:
            continue
        except RecursionError:  # brackets in texts of JSON count as closed ones
            refuse(f"{param} has a schema that is nested too deeply", param)
        checked_schema(schema, param=param, budget=budget)


def _check_depth(text: str, param: str) -> None:
    depth = deepest = 0
    for char in re.sub(r"[^()\[\]{}]+", "", text):
        depth = depth + 1 if char in "([{" else max(0, depth - 1)  # one that closes none
        deepest = max(deepest, depth)
    check_at_most(deepest, MAX_LARK_DEPTH, "brackets in each other", param)
