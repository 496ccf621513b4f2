"""A form that comes after a thought: the model thinks freely, ends that, and keeps to the form.

A thought that the prompt's end has begun needs its end alone; in all others the model may think, or
not. The form itself is compiled as it is, as a grammar beside that of the thought.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from cluster.grammar import Grammar, GrammarKind
from router.grammar.call_terms import Terms
from router.grammar.limits import check_size

_FORM = "form"
_SPACES = "WS: /[ \\t\\n\\r]{0,8}/"


class FormsByPrompt(NamedTuple):
    """`in_thought`: after a prompt whose end has begun a thought; None: the same as `plain`.
    `within`: the form alone, which a trial of a few tokens would not reach; None: it would."""

    plain: Grammar | None
    in_thought: Grammar | None = None
    within: Grammar | None = None


def after_thought(
    form: Grammar, thoughts: tuple[str, str], special: Mapping[str, int]
) -> FormsByPrompt:
    """`thoughts`: the words around one; `special`: ids of those that are special tokens. Raises
    InvalidRequest for a form that is too long with it."""
    begin, end = thoughts
    terms = Terms(special)
    rules = [_SPACES, *terms.up_to(end, "thought")]
    maybe = f"start: ({terms.word(begin)} thought WS)? @{_FORM}"
    must = f"start: thought WS @{_FORM}"
    return FormsByPrompt(_beside(form, [maybe, *rules]), _beside(form, [must, *rules]), form)


def _beside(form: Grammar, rules: list[str]) -> Grammar:
    inner: dict[str, Any] = {"lark_grammar": form.text}
    if form.text.startswith("{"):
        (inner,) = msgspec.json.decode(form.text)["grammars"]
    grammars = [{"lark_grammar": "\n".join(rules)}, {**inner, "name": _FORM}]
    param = form.param or _FORM
    text = check_size(json.dumps({"grammars": grammars}, ensure_ascii=False), param)
    return Grammar(text, GrammarKind.LARK, form.param)
