"""What a chat's answer is to be, by where its prompt ends: calls, or a form after a thought."""

from __future__ import annotations

from router.api.reading.answer_format import grammar_in
from router.api.reading.schema import ChatRequest
from router.api.reading.talk import thinks_first
from router.front.served_model import ServedModel
from router.grammar.call_grammar import CallGrammars
from router.grammar.thought_first import FormsByPrompt, after_thought


def forms_of(
    request: ChatRequest, model: ServedModel, called: CallGrammars | None
) -> FormsByPrompt:
    """`called`: the grammar of calls, where the request asks for any. Raises InvalidRequest, naming
    the field at fault."""
    if called is not None:
        return FormsByPrompt(called.plain, called.in_thought)
    form, thoughts = grammar_in(request), model.manners.thoughts
    if form is None or thoughts is None or not thinks_first(request):
        return FormsByPrompt(form)
    return after_thought(form, (thoughts.begin, thoughts.end), model.manners.special)
