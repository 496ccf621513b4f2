"""Chat messages as (role, content) pairs that a template can render, and what is beside them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.nesting import check_depth
from router.api.reading.schema import ChatMessage, ContentPart, PredictedContent
from router.api.reading.tool_schema import MessageCall
from router.front.chat_rules import checked_role
from router.front.generation_request import check_prediction
from router.tools.call_teller import MAX_CALLS

MAX_ARGUMENTS_DEPTH = 64
"""Of a call: templates and encoders go down one call of a function for each."""
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_NOTHING = (None,) * 4
_beside_text = attrgetter("tool_calls", "tool_call_id", "reasoning_content", "reasoning")
Extras = dict[int, dict[str, Any]]
"""See ToolTalk."""


def to_pairs(messages: list[ChatMessage]) -> tuple[tuple[str, str], ...]:
    """Checks roles and contents. Raises InvalidRequest naming the message at fault."""
    return tuple(_pair(message, f"messages[{i}]") for i, message in enumerate(messages))


def predicted_text(prediction: PredictedContent) -> str:
    """What the answer is expected to be; empty text says nothing. Raises InvalidRequest."""
    if prediction.type != "content":
        raise InvalidRequest(
            f"prediction has type {prediction.type[:50]!r}; only content is supported",
            param="prediction.type",
        )
    content = prediction.content
    if not isinstance(content, str):
        parts = enumerate(content)
        content = "".join(_part(part, f"prediction.content[{i}]") for i, part in parts)
    return check_prediction(content)


def extras_of(messages: list[ChatMessage]) -> Extras:
    """Calls of earlier answers, what came of them, and thoughts. Raises InvalidRequest."""
    extras: Extras = {}
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        if _beside_text(message) == _NOTHING and message.role != "tool":
            continue
        extra: dict[str, Any] = {}
        if message.tool_calls:
            extra["tool_calls"] = _calls(message, f"messages[{index}]", names)
        if thought := message.reasoning_content or message.reasoning:
            extra["reasoning_content"] = thought
        if message.role == "tool":
            extra |= _result(message, f"messages[{index}]", names)
        elif message.tool_call_id is not None:
            where = f"messages[{index}].tool_call_id"
            raise InvalidRequest(f"{where} is for messages of the role tool", param=where)
        if extra:
            extras[index] = extra
    return extras


def _pair(message: ChatMessage, where: str) -> tuple[str, str]:
    if message.role == "tool":
        return "tool", _text(message, f"{where}.content")
    role = checked_role(message.role, f"{where}.role")
    if role == "assistant" and message.content is None:
        return role, ""  # an answer of calls, or a thought that was cut
    return role, _text(message, f"{where}.content")


def _text(message: ChatMessage, where: str) -> str:
    if message.content is None:
        raise InvalidRequest(f"{where} is missing; it needs text", param=where)
    if isinstance(message.content, str):
        return message.content
    return "\n".join(_part(part, f"{where}[{i}]") for i, part in enumerate(message.content))


def _part(part: ContentPart, where: str) -> str:
    if part.type != "text":
        raise InvalidRequest(
            f"{where} has type {part.type[:50]!r}; only text parts are supported", param=where
        )
    if part.text is None:
        raise InvalidRequest(f"{where}.text is missing", param=f"{where}.text")
    return part.text


def _calls(message: ChatMessage, where: str, names: dict[str, str]) -> list[dict[str, Any]]:
    calls = message.tool_calls or []
    if message.role != "assistant":
        raise InvalidRequest(
            f"{where}.tool_calls stands in a message of {message.role[:50]!r}; only the assistant "
            "calls tools",
            param=f"{where}.tool_calls",
        )
    if len(calls) > MAX_CALLS:
        raise InvalidRequest(
            f"{where}.tool_calls has {len(calls)} entries; allowed: {MAX_CALLS}",
            param=f"{where}.tool_calls",
        )
    return [_call(call, f"{where}.tool_calls[{i}]", names) for i, call in enumerate(calls)]


def _call(call: MessageCall, where: str, names: dict[str, str]) -> dict[str, Any]:
    """Arguments as an object: so templates want them."""
    if call.type not in (None, "function"):
        raise InvalidRequest(
            f"{where}.type is {str(call.type)[:50]!r}; only functions are supported",
            param=f"{where}.type",
        )
    function = call.function
    try:
        arguments = _OBJECT.decode(function.arguments) if function.arguments else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidRequest(
            f"{where}.function.arguments is no JSON object in a text",
            param=f"{where}.function.arguments",
        ) from None
    check_depth(arguments, f"{where}.function.arguments", MAX_ARGUMENTS_DEPTH)
    made: dict[str, Any] = {"name": function.name, "arguments": arguments}
    if call.id is None:
        return {"type": "function", "function": made}
    names[call.id] = function.name
    return {"type": "function", "id": call.id, "function": made}


def _result(message: ChatMessage, where: str, names: dict[str, str]) -> dict[str, Any]:
    if not message.tool_call_id:
        raise InvalidRequest(
            f"{where}.tool_call_id is missing; a tool's message says which call it answers",
            param=f"{where}.tool_call_id",
        )
    name = message.name or names.get(message.tool_call_id)
    extra: dict[str, Any] = {"tool_call_id": message.tool_call_id}
    return extra if name is None else {**extra, "name": name}
