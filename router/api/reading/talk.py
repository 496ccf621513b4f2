"""From a chat's body to what its template gets beside texts, and how its answer is parsed."""

from __future__ import annotations

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.chat_messages import extras_of, to_pairs
from router.api.reading.schema import ChatRendering, ChatRequest
from router.api.reading.tool_kinds import kinds_of
from router.api.reading.tools import as_given, check_model_calls, offered
from router.front.generation_request import ToolTalk
from router.front.served_model import ServedModel
from router.tools.answer_parser import Parsing
from router.tools.formats import RawValues
from router.tools.thoughts import ThoughtFormat


def talk_of(request: ChatRequest | ChatRendering, model: ServedModel) -> ToolTalk | None:
    """None: nothing but texts. Raises InvalidRequest."""
    extras = extras_of(request.messages)
    functions = offered(request)
    if not functions and not extras:
        return None
    if functions:
        check_model_calls(model)
    tools = tuple(map(as_given, functions))
    num_chars = len(msgspec.json.encode((tools, extras)).decode()) // 2  # escapes, keys left out
    return ToolTalk(tools=tools, extras=extras, num_chars=num_chars)


def parsing_of(request: ChatRequest, model: ServedModel) -> Parsing | None:
    """None: the answer is nothing but text. Raises InvalidRequest."""
    thoughts = _thoughts_of(request, model)
    functions = offered(request)
    if has_form(request) and not thinks_first(request):
        thoughts = None  # the form holds from the first character on
    if thoughts is None and not functions:
        return None
    return Parsing(
        thoughts=thoughts,
        tools=model.manners.tools if functions else None,
        names=frozenset(each.name for each in functions),
        kinds=kinds_of(functions) if _types_values(model) else {},
        only_first_call=calls_once(request, model),
    )


def calls_once(request: ChatRequest, model: ServedModel) -> bool:
    """An answer has one call at most: by the client's word, or since no more can be sent back."""
    return request.parallel_tool_calls is False or model.manners.one_call


def _types_values(model: ServedModel) -> bool:
    """What schemas of tools say of parameters may be asked for."""
    tools = model.manners.tools
    return tools is not None and tools.raw_values is not RawValues.NEVER


def continues_thought(request: ChatRequest, model: ServedModel) -> bool:
    """The answer goes on with a last message whose thought is not at its end."""
    thoughts = model.manners.thoughts
    if thoughts is None or not request.continue_final_message:
        return False
    [(_, text)] = to_pairs(request.messages[-1:])
    return thoughts.is_open_in(text)


def thinks_first(request: ChatRequest) -> bool:
    """A model that thinks does so before it keeps to a form: where its thoughts are told apart."""
    return request.reasoning_format != "none" and not request.resumable


def has_form(request: ChatRequest) -> bool:
    """The answer is not just any text."""
    asked = (request.response_format, request.structured_outputs)
    return asked != (None, None) and asked != ({"type": "text"}, None)


def _thoughts_of(request: ChatRequest, model: ServedModel) -> ThoughtFormat | None:
    asked = request.reasoning_format
    if asked not in (None, "auto", "none"):
        raise InvalidRequest(
            f"reasoning_format is {asked[:50]!r}; allowed: auto, none", param="reasoning_format"
        )
    return None if asked == "none" else model.manners.thoughts
