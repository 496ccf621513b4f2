"""A form that comes after a thought: the model thinks freely, ends that, and keeps to the form.

A thought that the prompt's end has begun needs its end alone; in all others the model may think, or
not. The form itself is compiled as it is, as a grammar beside that of the thought.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster.grammar import Grammar, GrammarKind, parts_of, whole_of
from router.grammar.lark_terms import SPACES, SPACES_RULE, Terms
from router.grammar.limits import check_size
from router.tools.thoughts import ThoughtFormat

_FORM = "form"


class FormsByPrompt(NamedTuple):
    """`in_thought`: after a prompt whose end has begun a thought; None: the same as `plain`.
    `within`: the form alone, which a trial of a few tokens would not reach; None: it would."""

    plain: Grammar | None
    in_thought: Grammar | None = None
    within: Grammar | None = None


def after_thought(
    form: Grammar, thoughts: ThoughtFormat, special: Mapping[str, int]
) -> FormsByPrompt:
    """`special`: ids of those words of `thoughts` that are special tokens. Raises InvalidRequest
    for a form that is too long with it."""
    terms = Terms(special)
    rules = [SPACES_RULE, *terms.up_to(thoughts.end, "thought")]
    maybe = f"start: ({terms.word(thoughts.begin)} thought {SPACES})? @{_FORM}"
    must = f"start: thought {SPACES} @{_FORM}"
    return FormsByPrompt(_beside(form, [maybe, *rules]), _beside(form, [must, *rules]), form)


def _beside(form: Grammar, rules: list[str]) -> Grammar:
    (inner,) = parts_of(form)
    whole = whole_of([{"lark_grammar": "\n".join(rules)}, {**inner, "name": _FORM}])
    return Grammar(check_size(whole, form.param or _FORM), GrammarKind.LARK, form.param)
