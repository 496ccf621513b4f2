"""Answers that call tools, or keep to a form: the model chooses."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cluster.grammar import Grammar, GrammarKind
from router.grammar.call_grammar import CallGrammars
from router.grammar.limits import check_size
from router.grammar.thought_first import FormsByPrompt

_CALLS, _ANSWER = "calls", "answer"


def call_or_form(called: CallGrammars, answer: FormsByPrompt) -> FormsByPrompt:
    """`called`: of answers that do call. Raises InvalidRequest for what is too long together."""
    assert answer.plain is not None, "who asks has a form"
    in_thought = None
    if called.in_thought is not None:
        in_thought = _either(called.in_thought, answer.in_thought or answer.plain)
    return FormsByPrompt(
        _either(called.plain, answer.plain), in_thought, answer.within or answer.plain
    )


def _either(calls: Grammar, form: Grammar) -> Grammar:
    first, *others = _parts(form)
    grammars = [
        {"lark_grammar": f"start: @{_CALLS} | @{_ANSWER}"},
        {"lark_grammar": calls.text, "name": _CALLS},
        {**first, "name": _ANSWER},
        *others,
    ]
    text = json.dumps({"grammars": grammars}, ensure_ascii=False)
    return Grammar(check_size(text, form.param or "tools"), GrammarKind.TOOLS, form.param)


def _parts(grammar: Grammar) -> list[dict[str, Any]]:
    if not grammar.text.startswith("{"):
        return [{"lark_grammar": grammar.text}]
    parts: list[dict[str, Any]] = msgspec.json.decode(grammar.text)["grammars"]
    return parts
