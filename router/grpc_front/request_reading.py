"""From a GenerateRequest to what the pipeline takes."""

from __future__ import annotations

from dataclasses import replace

from cluster.errors import InvalidRequest
from cluster.wire import sampling_from_wire
from protos import inference_pb2
from router.api.chat_messages import checked_role
from router.dispatch.time_limits import TimeLimits
from router.front.generation_request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    TextPrompt,
    TokenPrompt,
    check_stops,
    seed_of,
)


def read_request(
    message: inference_pb2.GenerateRequest, request_id: str, *, limits: TimeLimits
) -> GenerationRequest:
    """Raises InvalidRequest; ranges of sampling parameters are checked by the pipeline."""
    wire = message.sampling
    seed = seed_of(wire.seed if wire.HasField("seed") else None)
    return GenerationRequest(
        request_id=request_id,
        prompt=_prompt(message),
        sampling=replace(sampling_from_wire(wire, max_tokens=1), seed=seed),
        max_tokens=wire.max_tokens if wire.HasField("max_tokens") else None,
        stop=check_stops(tuple(wire.stop)),
        limits=limits,
        keep_tokens=True,
    )


def _prompt(message: inference_pb2.GenerateRequest) -> Prompt:
    kind = message.WhichOneof("input")
    if kind == "text":
        return TextPrompt(message.text)
    if kind == "tokens":
        return TokenPrompt(tuple(message.tokens.ids))
    if kind == "chat":
        return _chat(message.chat)
    raise InvalidRequest("input is missing; set text, chat or tokens", param="input")


def _chat(chat: inference_pb2.Chat) -> ChatPrompt:
    if not chat.messages:
        raise InvalidRequest("chat has no messages; it needs at least one", param="chat")
    return ChatPrompt(
        tuple(
            (checked_role(message.role, f"chat.messages[{i}].role"), message.content)
            for i, message in enumerate(chat.messages)
        )
    )
