"""Answers that call tools, or keep to a form: the model chooses."""

from __future__ import annotations

from cluster.grammar import Grammar, GrammarKind, parts_of, whole_of
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
    first, *others = parts_of(form)
    parts = [
        {"lark_grammar": f"start: @{_CALLS} | @{_ANSWER}"},
        {"lark_grammar": calls.text, "name": _CALLS},
        {**first, "name": _ANSWER},
        *others,
    ]
    text = check_size(whole_of(parts), form.param or "tools")
    return Grammar(text, GrammarKind.TOOLS, form.param)
