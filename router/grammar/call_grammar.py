"""The grammar of an answer that calls: it must, or if it does, then as the schemas have it.

    must:  thought? call+                        auto:  thought? (text call+)* text

A thought that the prompt's end has begun needs its end alone; whether it has is known only once the
prompt is made, so there is a beginning for either case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from cluster.grammar import Grammar, GrammarKind
from router.grammar.call_syntax import CallSyntax, Function, syntax_of
from router.grammar.json_schema import checked_schema
from router.grammar.lark import lark_grammar
from router.grammar.lark_terms import ANY, SPACES, SPACES_RULE, Terms, regex, without
from router.grammar.schema_budget import Allowance, SchemaBudget, comparisons_after
from router.tools.formats import ToolFormat
from router.tools.thoughts import ThoughtFormat

_PARAM = "tools"
_SPACE = r"[\s\x1c-\x1f]"
"""What Python's `\\s` is."""


class CallGrammars(msgspec.Struct, frozen=True):
    """Of one body; both have `rules`, each its own first line."""

    rules: str
    start: str
    start_in_thought: str | None
    """None: the model has no thoughts."""
    num_compared: int = 0
    """Steps of comparing alternatives."""

    @property
    def comparisons(self) -> Allowance:
        """What is left for a form beside the calls."""
        return comparisons_after(self.num_compared, _PARAM)

    @property
    def plain(self) -> Grammar:
        """After a prompt whose end is in no thought."""
        return Grammar(f"{self.start}\n{self.rules}", GrammarKind.TOOLS)

    @property
    def in_thought(self) -> Grammar | None:
        """After one whose end has begun a thought."""
        if self.start_in_thought is None:
            return None
        return Grammar(f"{self.start_in_thought}\n{self.rules}", GrammarKind.TOOLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWish:
    """What of calls a body asks for, and how its model writes them."""

    tools: ToolFormat
    functions: Sequence[Function]
    must_call: bool
    only_one: bool
    special: Mapping[str, int]
    """Ids of the words of `tools`, and of `thoughts`, that are special tokens."""
    thoughts: ThoughtFormat | None
    """None: the model has none."""


def call_grammars(wish: CallWish) -> CallGrammars:
    """Raises InvalidRequest naming the schema that cannot be followed."""
    budget, terms = SchemaBudget(_PARAM), Terms(wish.special)
    functions = [
        replace(each, schema=checked_schema(each.schema, param=each.param, budget=budget))
        for each in wish.functions
    ]
    num_compared = budget.comparisons.num
    syntax = syntax_of(wish.tools, functions, terms, budget)
    rules = [SPACES_RULE, f"call: {' | '.join(syntax.calls)}"]
    rules.append(f"section: {_section(syntax, wish.only_one)}")
    rules += syntax.rules
    rules += _called(syntax, wish, terms) if wish.must_call else _maybe(wish, terms)
    if wish.thoughts is None:
        made = CallGrammars("\n".join(rules), "start: answer", None, num_compared)
    else:
        rules += terms.up_to(wish.thoughts.end, "thought")
        start = f"start: ({SPACES} {terms.word(wish.thoughts.begin)} thought {SPACES})? answer"
        in_thought = f"start: thought {SPACES} answer"
        made = CallGrammars("\n".join(rules), start, in_thought, num_compared)
    lark_grammar(made.plain.text, param=_PARAM, kind=GrammarKind.TOOLS)  # its limits
    return made


def _section(syntax: CallSyntax, only_one: bool) -> str:
    """After the trigger."""
    more = "" if only_one or syntax.between is None else f"({syntax.between} call)*"
    return " ".join(each for each in (syntax.opening, "call", more, syntax.closing) if each)


def _called(syntax: CallSyntax, wish: CallWish, terms: Terms) -> list[str]:
    trigger = terms.word(wish.tools.trigger)
    begun = f"({trigger})? section" if wish.tools.bare else f"{trigger} section"
    more = "" if wish.only_one or syntax.between is not None else f" ({SPACES} {begun})*"
    return [f"answer: {begun}{more}"]


def _maybe(wish: CallWish, terms: Terms) -> list[str]:
    """Free text has none of the words with which calls, or a thought, begin."""
    trigger, *others = wish.tools.sections
    others += [wish.thoughts.begin] if wish.thoughts is not None else []
    if wish.tools.bare:
        return _maybe_bare(wish.tools, others, terms)
    times = "?" if wish.only_one else "*"
    return [
        f"answer: (before section){times} TAIL",
        f"TAIL: {without([trigger, *others])}",
        *terms.up_to(trigger, "before", others=others),
    ]


def _maybe_bare(tools: ToolFormat, others: Sequence[str], terms: Terms) -> list[str]:
    """Text that begins as a call is one; calls are the end of the answer."""
    (opening,) = tools.bare
    no_call = f"~/{_SPACE}*{regex(opening)}{ANY}/"
    return [
        "answer: TAIL | section | before section",
        f"TAIL: {without([tools.trigger, *others])} & {no_call}",
        *terms.up_to(tools.trigger, "before", others=others, and_=no_call),
    ]
