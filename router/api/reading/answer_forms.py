"""What a chat's answer is to be, by where its prompt ends: calls, a form after a thought, or one of
both."""

from __future__ import annotations

from router.api.reading.answer_format import grammar_in
from router.api.reading.called_form import must_call
from router.api.reading.schema import ChatRequest
from router.api.reading.talk import thinks_first
from router.front.served_model import ServedModel
from router.grammar.call_grammar import CallGrammars
from router.grammar.call_or_form import call_or_form
from router.grammar.thought_first import FormsByPrompt, after_thought


def forms_of(
    request: ChatRequest, model: ServedModel, called: CallGrammars | None
) -> FormsByPrompt:
    """`called`: the grammar of calls, where the request asks for any. A form beside calls that have
    to come is checked, and used for nothing. Raises InvalidRequest, naming the field at fault."""
    comparisons = None if called is None else called.comparisons
    form, thoughts = grammar_in(request, comparisons=comparisons), model.manners.thoughts
    if called is not None and (form is None or must_call(request)):
        return FormsByPrompt(called.plain, called.in_thought)
    answer = FormsByPrompt(form)
    if form is not None and thoughts is not None and thinks_first(request):
        answer = after_thought(form, thoughts, model.manners.special)
    return answer if called is None else call_or_form(called, answer)
