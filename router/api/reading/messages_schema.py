"""Bodies of /v1/messages, as Anthropic's clients send them. Unknown fields are errors; what is
declared as Any is known, and has no effect or is refused by name (`messages_reader.py`)."""

from __future__ import annotations

from typing import Any

import msgspec


class Block(msgspec.Struct, kw_only=True):
    """One piece of a message's content: a text, a thought, a call or its result."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None
    """Of a result: the tool failed."""


class TurnMessage(msgspec.Struct, forbid_unknown_fields=True):
    """One turn."""

    role: str
    content: str | list[Block]


class MessageTool(msgspec.Struct, kw_only=True):
    """A tool of the client's."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class MessageToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    """`auto`, `none`, `any`, or `tool` with its name."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingWish(msgspec.Struct):
    """Whether the model is to think."""

    type: str
    budget_tokens: int | None = None
    """Clients have to send one. It is no limit: nothing but max_tokens ends a thought here."""


class MessagesRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/messages, and /v1/messages/count_tokens without `max_tokens`."""

    model: str | None = None
    messages: list[TurnMessage]
    system: str | list[Block] | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: ThinkingWish | None = None
    stop_sequences: list[str] | None = None

    # Accepted, without effect here.
    metadata: Any = None
    service_tier: Any = None
    cache_control: Any = None

    # Refused by name.
    thread: Any = None
    output_config: Any = None
    container: Any = None
    mcp_servers: Any = None
    context_management: Any = None
