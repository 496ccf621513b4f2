"""Bodies of /v1/responses: nothing is stored, so each brings all that was said before."""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from router.api.answers.response_telling import response_telling
from router.api.reading.decode import decode_known
from router.api.reading.field_names import FieldNames
from router.api.reading.responses_schema import (
    InputItem,
    InputPart,
    ResponsesRequest,
    ResponseTool,
    ResponseToolChoice,
)
from router.api.reading.schema import ChatMessage, ChatRequest
from router.api.reading.tool_schema import (
    CalledFunction,
    FunctionDefinition,
    FunctionName,
    MessageCall,
    NamedChoice,
    ToolDefinition,
)
from router.api.reading.translated_reader import MakeTelling, TranslatedReader
from router.front.chat_rules import check_num_messages
from router.front.text_work import Door

_DECODER = msgspec.json.Decoder(ResponsesRequest)
_REFUSED = (
    "previous_response_id",
    "conversation",
    "prompt",
    "background",
    "top_logprobs",
    "max_tool_calls",
    "context_management",
    "resumable",
)
_UNFINISHED = ("in_progress", "incomplete")
_TEXTS = frozenset({"input_text", "output_text", "text", "reasoning_text"})


class ResponsesReader(TranslatedReader):
    """See BodyReader."""

    door = Door.RESPONSES
    id_prefix = "resp"
    names = FieldNames(
        (r"messages\[\d+\]\.tool_calls\[\d+\]\.function", "input[]"),
        (r"messages\[\d+\]\.tool_call_id", "input[].call_id"),
        (r"messages\[\d+\]\.tool_calls", "input"),
        (r"messages\[\d+\]", "input[]"),
        (r"messages(?= (?:is|has) |$)", "input"),
        (r"tools\[(\d+)\]\.function", r"tools[\1]"),
        (r"response_format\.json_schema", "text.format"),
        ("response_format", "text.format"),
        ("max_tokens", "max_output_tokens"),
        ("reasoning_effort", "reasoning.effort"),
    )

    def _telling(self, request: ChatRequest) -> MakeTelling:
        choice = request.tool_choice
        if isinstance(choice, NamedChoice) and choice.function is not None:
            told: Any = {"type": "function", "name": choice.function.name}
        else:
            told = choice or "auto"
        return response_telling(
            {
                "metadata": request.metadata or {},
                "temperature": request.temperature,
                "top_p": request.top_p,
                "max_output_tokens": request.max_tokens,
                "parallel_tool_calls": request.parallel_tool_calls is not False,
                "tool_choice": told,
                "tools": [_told(tool) for tool in request.tools or []],
                "reasoning": {"effort": request.reasoning_effort, "summary": None},
                "truncation": "disabled",
            }
        )

    def _decoded(self, body: bytes) -> tuple[ChatRequest, tuple[str, ...]]:
        asked, ignored = decode_known(body, _DECODER, ignores_unknown=self._ignores_unknown)
        return chat_of(asked), ignored


def chat_of(asked: ResponsesRequest) -> ChatRequest:
    """The same as a chat. Raises InvalidRequest."""
    for name in _REFUSED:
        if getattr(asked, name):
            raise InvalidRequest(
                f"{name} is not supported by this server; leave it out", param=name
            )
    if asked.truncation not in (None, "disabled"):
        raise InvalidRequest("truncation must be disabled; leave it out", param="truncation")
    choice = asked.tool_choice
    messages = _messages(asked)
    return ChatRequest(
        model=asked.model,
        messages=messages,
        max_tokens=asked.max_output_tokens,
        stream=asked.stream,
        temperature=asked.temperature,
        top_p=asked.top_p,
        tools=None if asked.tools is None else [_tool(tool) for tool in asked.tools],
        tool_choice=_named(choice) if isinstance(choice, ResponseToolChoice) else choice,
        parallel_tool_calls=asked.parallel_tool_calls,
        reasoning_effort=None if asked.reasoning is None else asked.reasoning.effort,
        metadata=asked.metadata,
        response_format=_format(asked.text),
        continue_final_message=_is_begun(asked.input, messages[-1]) or None,
    )


def _is_begun(said: str | list[InputItem], message: ChatMessage) -> bool:
    """The last item, which `message` has become, is an answer that was cut: this one goes on with
    it. After all others a new one begins, as OpenAI has it. Raises InvalidRequest where the last is
    a call that nobody has answered."""
    if isinstance(said, str):
        return False
    last = said[-1]
    if last.type == "function_call":
        raise InvalidRequest(
            "input ends with a function_call; send its function_call_output as well", param="input"
        )
    is_cut = last.type == "message" and last.status in _UNFINISHED
    return is_cut and message.role == "assistant" and bool(message.content)


def _messages(asked: ResponsesRequest) -> list[ChatMessage]:
    first = [ChatMessage("system", asked.instructions)] if asked.instructions else []
    if isinstance(asked.input, str):
        return [*first, ChatMessage("user", asked.input)]
    check_num_messages(len(asked.input))
    messages = first
    for index, item in enumerate(asked.input):
        _add(messages, item, f"input[{index}]")
    if not messages:
        raise InvalidRequest("input says nothing; it needs at least one message", param="input")
    return messages


def _add(messages: list[ChatMessage], item: InputItem, where: str) -> None:
    """What an answer had is one message again: thought, text and calls."""
    match item.type:
        case "message" if item.role == "assistant":
            last = _answer(messages)
            last.content = f"{last.content or ''}{_text(item.content, where)}"
        case "message":
            messages.append(ChatMessage(item.role or "user", _text(item.content, where)))
        case "reasoning":
            if item.content:
                _answer(messages).reasoning_content = _text(item.content, where)
        case "function_call":
            called = CalledFunction(item.name or "", item.arguments or "")
            last = _answer(messages)
            last.tool_calls = [*(last.tool_calls or ()), MessageCall(called, item.call_id)]
        case "function_call_output":
            text = _text(item.output, where)
            messages.append(ChatMessage("tool", text, tool_call_id=item.call_id))
        case _:
            raise InvalidRequest(
                f"{where} has type {item.type[:50]!r}, which is not supported here", param=where
            )


def _answer(messages: list[ChatMessage]) -> ChatMessage:
    """The assistant's, which is going on or begins."""
    if not messages or messages[-1].role != "assistant":
        messages.append(ChatMessage("assistant"))
    return messages[-1]


def _text(content: str | list[InputPart] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in _TEXTS or part.text is None:
            raise InvalidRequest(
                f"{where} has a part of type {part.type[:50]!r}; only texts are supported",
                param=where,
            )
    return "\n".join(part.text or "" for part in content)


def _tool(tool: ResponseTool) -> ToolDefinition:
    made = FunctionDefinition(tool.name, tool.description, tool.parameters, tool.strict)
    return ToolDefinition(tool.type, made)


def _named(choice: ResponseToolChoice) -> NamedChoice:
    name = None if choice.name is None else FunctionName(choice.name)
    return NamedChoice(choice.type, name)


def _format(text: dict[str, Any] | None) -> Any:
    """As a chat says it."""
    if text and text.get("verbosity") not in (None, "medium"):
        raise InvalidRequest("text.verbosity is not supported; leave it out", param="text")
    asked = (text or {}).get("format")
    if not isinstance(asked, dict) or asked.get("type") != "json_schema":
        return asked
    named = {key: value for key, value in asked.items() if key != "type"}
    return {"type": "json_schema", "json_schema": named}


def _told(tool: ToolDefinition) -> dict[str, Any]:
    """By its name: the client has the rest."""
    name = "" if tool.function is None else tool.function.name
    is_strict = tool.function is not None and bool(tool.function.strict)
    return {"type": "function", "name": name, "parameters": None, "strict": is_strict}
