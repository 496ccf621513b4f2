"""Bodies of /v1/responses, as OpenAI's clients send them. Unknown fields are errors; what is
declared as Any is known, and has no effect or is refused by name (`responses_reader.py`)."""

from __future__ import annotations

from typing import Any

import msgspec


class InputPart(msgspec.Struct):
    """A text, of whoever said it."""

    type: str
    text: str | None = None


class InputItem(msgspec.Struct, kw_only=True):
    """A message, a call, what came of one, or a thought."""

    type: str = "message"
    role: str | None = None
    status: str | None = None
    """Of a message of the assistant: one that is not `completed` may be gone on with."""
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None


class ResponseTool(msgspec.Struct, kw_only=True):
    """Only functions are served."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseToolChoice(msgspec.Struct):
    """One function by its name."""

    type: str
    name: str | None = None


class ReasoningWish(msgspec.Struct):
    """`effort` is for the template; summaries are never made."""

    effort: str | None = None
    summary: str | None = None


class ResponsesRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/responses."""

    model: str | None = None
    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningWish | None = None
    text: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    truncation: str | None = None

    # Accepted, without effect here.
    store: bool | None = None
    include: list[str] | None = None
    user: str | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    stream_options: Any = None

    # Refused by name.
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    top_logprobs: int | None = None
    max_tool_calls: int | None = None
    context_management: Any = None
    resumable: bool | None = None
