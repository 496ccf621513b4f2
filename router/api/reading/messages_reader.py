"""Bodies of /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.errors import InvalidRequest
from router.api.answers.message_telling import MessageTelling
from router.api.reading.asked_model import rest_with
from router.api.reading.chat_messages import MAX_ARGUMENTS_DEPTH
from router.api.reading.decode import decode_known
from router.api.reading.field_names import FieldNames
from router.api.reading.messages_schema import (
    Block,
    MessagesRequest,
    MessageTool,
    MessageToolChoice,
    TurnMessage,
)
from router.api.reading.nesting import check_depth
from router.api.reading.schema import ChatMessage, ChatRequest
from router.api.reading.thinking_wish import switch_of
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
from router.front.generation_request import TokenPrompt, check_stops
from router.front.served_model import ServedModel
from router.front.text_work import Door, SplitBody

_DECODER = msgspec.json.Decoder(MessagesRequest)
_REFUSED = (
    "thread",
    "output_config",
    "container",
    "mcp_servers",
    "context_management",
)
_WORDS = {"auto": "auto", "none": "none", "any": "required"}


class MessagesReader(TranslatedReader):
    """See BodyReader."""

    door = Door.MESSAGES
    id_prefix = "msg"
    names = FieldNames(
        (r"messages\[\d+\]\.tool_call_id", "messages[].content[].tool_use_id"),
        (r"messages\[\d+\]\.tool_calls\[\d+\]\.function", "messages[].content[]"),
        (r"messages\[\d+\]\.tool_calls", "messages[].content"),
        (r"tools\[(\d+)\]\.function\.parameters", r"tools[\1].input_schema"),
        (r"tools\[(\d+)\]\.function", r"tools[\1]"),
        ("chat_template_kwargs", "thinking"),
    )

    def _telling(self, request: ChatRequest) -> MakeTelling:
        return MessageTelling

    def _decoded(self, body: bytes) -> tuple[ChatRequest, tuple[str, ...]]:
        asked, ignored = decode_known(body, _DECODER, ignores_unknown=self._ignores_unknown)
        if asked.max_tokens is None:
            raise InvalidRequest("Missing required parameter: max_tokens", param="max_tokens")
        return chat_of(asked, self._model), ignored


class CountReader(MessagesReader):
    """See TextReader: how many tokens a body's prompt has."""

    door = Door.COUNT_TOKENS

    def _decoded(self, body: bytes) -> tuple[ChatRequest, tuple[str, ...]]:
        asked, ignored = decode_known(body, _DECODER, ignores_unknown=self._ignores_unknown)
        return chat_of(asked, self._model), ignored

    def split(self, body: bytes) -> SplitBody:
        """See TextReader."""
        with self.names.told():
            request, ignored = self._checked(body)
            prompts = (self._prompt(request),)
        return SplitBody(rest_with(request.model), prompts, ignored=ignored)

    async def answer(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> bytes:
        """See TextReader."""
        return msgspec.json.encode({"input_tokens": len(prompts[0].token_ids)})


def chat_of(asked: MessagesRequest, model: ServedModel) -> ChatRequest:
    """The same as a chat. Raises InvalidRequest."""
    for name in _REFUSED:
        if getattr(asked, name):
            raise InvalidRequest(
                f"{name} is not supported by this server; leave it out", param=name
            )
    stops = check_stops(tuple(asked.stop_sequences or ()), "stop_sequences")
    check_num_messages(len(asked.messages))
    choice = asked.tool_choice
    messages = [*_system(asked), *_turns(asked.messages)]
    return ChatRequest(
        model=asked.model,
        messages=messages,
        max_tokens=asked.max_tokens,
        stream=asked.stream,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        stop=list(stops) or None,
        tools=None if asked.tools is None else [_tool(tool) for tool in asked.tools],
        tool_choice=None if choice is None else _choice(choice),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        chat_template_kwargs=None if asked.thinking is None else switch_of(asked.thinking, model),
        continue_final_message=_is_begun(messages[-1]) or None,
    )


def _is_begun(last: ChatMessage) -> bool:
    """The answer goes on with it, as it stands. Raises InvalidRequest where it cannot."""
    if last.role != "assistant":
        return False
    if last.tool_calls:
        raise InvalidRequest(
            "messages ends with a tool_use; send its tool_result as well", param="messages"
        )
    if not isinstance(last.content, str) or not last.content.strip():
        raise InvalidRequest(
            "messages ends with an assistant's message without text; leave it out", param="messages"
        )
    return True


def _system(asked: MessagesRequest) -> list[ChatMessage]:
    if not asked.system:
        return []
    return [ChatMessage("system", _text_of(asked.system, "system"))]


def _turns(turns: list[TurnMessage]) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    for index, turn in enumerate(turns):
        where = f"messages[{index}]"
        if turn.role not in ("user", "assistant"):
            raise InvalidRequest(
                f"{where}.role is {turn.role[:50]!r}; allowed: user, assistant", param=where
            )
        if isinstance(turn.content, str):
            messages.append(ChatMessage(turn.role, turn.content))
        elif turn.role == "user":
            messages += _user(turn.content, f"{where}.content")
        else:
            messages.append(_assistant(turn.content, f"{where}.content"))
    return messages


def _user(blocks: list[Block], where: str) -> list[ChatMessage]:
    """Results of calls are messages of their own, before what the user says."""
    results = [
        ChatMessage("tool", _result(b, where), tool_call_id=b.tool_use_id)
        for b in blocks
        if b.type == "tool_result"
    ]
    said = [block for block in blocks if block.type != "tool_result"]
    if not said and results:
        return results
    return [*results, ChatMessage("user", _text_of(said, where))]


def _result(block: Block, where: str) -> str:
    """Templates know texts alone: that it is an error stands there."""
    text = _text_of(block.content or "", where)
    return f"Error: {text}" if block.is_error else text


def _assistant(blocks: list[Block], where: str) -> ChatMessage:
    thoughts = [b.thinking or "" for b in blocks if b.type == "thinking"]
    calls = [b for b in blocks if b.type == "tool_use"]
    said = [b for b in blocks if b.type not in ("thinking", "tool_use")]
    return ChatMessage(
        "assistant",
        _text_of(said, where),
        tool_calls=[_call(block, where) for block in calls] or None,
        reasoning_content="".join(thoughts) or None,
    )


def _call(block: Block, where: str) -> MessageCall:
    if block.name is None:
        raise InvalidRequest(f"{where} has a tool_use without a name", param=where)
    check_depth(block.input, f"{where}.input", MAX_ARGUMENTS_DEPTH)
    arguments = msgspec.json.encode(block.input or {}).decode()
    return MessageCall(CalledFunction(block.name, arguments), block.id)


def _text_of(content: str | list[Block], where: str) -> str:
    if isinstance(content, str):
        return content
    for index, block in enumerate(content):
        if block.type != "text" or block.text is None:
            raise InvalidRequest(
                f"{where}[{index}] has type {block.type[:50]!r}; here only text is supported",
                param=f"{where}[{index}]",
            )
    return "\n".join(block.text or "" for block in content)


def _tool(tool: MessageTool) -> ToolDefinition:
    kind = "function" if tool.type in (None, "custom") else str(tool.type)
    made = FunctionDefinition(tool.name, tool.description, tool.input_schema, tool.strict)
    return ToolDefinition(kind, made)


def _choice(choice: MessageToolChoice) -> str | NamedChoice:
    if choice.type == "tool" and choice.name is not None:
        return NamedChoice("function", FunctionName(choice.name))
    return _WORDS.get(choice.type, choice.type)
