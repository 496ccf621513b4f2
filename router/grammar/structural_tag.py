"""Free text with parts that follow a schema: each begins with a trigger, and is one of the
structures that begin so.

    {"type": "structural_tag", "triggers": ["<f="],
     "structures": [{"begin": "<f=add>", "schema": {...}, "end": "</f>"}]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar, GrammarKind
from router.grammar.json_schema import json_in_lark
from router.grammar.lark import lark_grammar
from router.grammar.lark_terms import quoted, regex, up_to_any, without_any
from router.grammar.limits import check_at_most, check_size, refuse
from router.grammar.schema_budget import Allowance, SchemaBudget, budget_of

MAX_TRIGGERS = 16
MAX_STRUCTURES = 64


class Structure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of part."""

    begin: str
    schema: Any
    end: str


class StructuralTag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As vLLM takes it."""

    structures: list[Structure]
    triggers: list[str]
    type: str = "structural_tag"


def structural_tag_grammar(
    asked: Any, *, param: str, comparisons: Allowance | None = None
) -> Grammar:
    """`asked`: plain JSON values; `comparisons`: see `budget_of`. Raises InvalidRequest."""
    if isinstance(asked, dict) and "format" in asked:
        refuse(f"{param}: `format` is not supported; use structures and triggers", param)
    try:
        tag = msgspec.convert(asked, StructuralTag)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{param} is no structural tag: {error}", param=param) from None
    check_at_most(len(tag.triggers), MAX_TRIGGERS, "triggers", param)
    check_at_most(len(tag.structures), MAX_STRUCTURES, "structures", param)
    text = _lark(tag, budget_of(param, comparisons))
    return lark_grammar(text, param=param, kind=GrammarKind.STRUCTURAL_TAG)


def _lark(tag: StructuralTag, budget: SchemaBudget) -> str:
    param = budget.param
    if not tag.triggers or not tag.structures:
        refuse(f"{param} needs at least one trigger and one structure", param)
    regexes = [regex(trigger) for trigger in tag.triggers]
    check_size("".join(regexes), param)  # each rule has all of them
    parts = [_parts_of(i, regexes, tag, budget) for i in range(len(regexes))]
    names = " | ".join(f"part_{i}" for i in range(len(parts)))
    return "\n".join([f"start: ({names})* TAIL", f"TAIL: {without_any(regexes)}", *parts])


def _parts_of(index: int, regexes: list[str], tag: StructuralTag, budget: SchemaBudget) -> str:
    """The rules of one trigger. Text ends with the first trigger that it comes to."""
    trigger, param = tag.triggers[index], budget.param
    if not trigger:
        refuse(f"{param} has an empty trigger", param)
    bodies = [
        _body(structure, trigger, budget)
        for structure in tag.structures
        if _trigger_of(structure, tag.triggers, param) == trigger
    ]
    if not bodies:
        refuse(f"{param}: no structure begins with the trigger {trigger[:80]!r}", param)
    others = [other for other in regexes if other != regexes[index]]
    begin = f"begin_{index}"
    rules = up_to_any(regexes[index], begin, others)
    return "\n".join([f"part_{index}: {begin} ({' | '.join(bodies)})", *rules])


def _body(structure: Structure, trigger: str, budget: SchemaBudget) -> str:
    begin = structure.begin[len(trigger) :]
    schema = json_in_lark(structure.schema, param=budget.param, budget=budget)
    before, behind = ([quoted(text)] if text else [] for text in (begin, structure.end))
    return " ".join([*before, schema, *behind])


def _trigger_of(structure: Structure, triggers: Sequence[str], param: str) -> str:
    """The one that it begins with. Raises InvalidRequest where there is none, or several."""
    found = [trigger for trigger in triggers if structure.begin.startswith(trigger)]
    if len(found) != 1:
        refuse(
            f"{param}: {structure.begin[:80]!r} begins with {len(found)} of the triggers; "
            "needed: one",
            param,
        )
    return found[0]
