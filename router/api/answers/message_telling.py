"""Answers of /v1/messages, in Anthropic's shape.

message_start -> (content_block_start -> _delta* -> _stop)* -> message_delta -> message_stop
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cluster.errors import SplitserveError
from cluster.generation import FinishReason
from cluster.identity import unique_hex
from router.api.answers.bodies import UsageBody
from router.api.answers.ending import NO_END, Ending
from router.api.answers.gathered_parts import GatheredParts
from router.api.answers.message_error import message_error_body
from router.api.answers.shape import Envelope
from router.api.answers.telling_shape import event
from router.tools.answer_parser import Parsing
from router.tools.formats import new_call_id
from router.tools.parts import (
    AnswerPart,
    CallArguments,
    CallBegun,
    CallBroken,
    CallEnded,
    Content,
    Thought,
)

_TEXT, _THINKING, _TOOL = "text", "thinking", "tool_use"


class MessageTelling:
    """See Telling."""

    def __init__(self, envelope: Envelope, parsing: Parsing) -> None:
        self._envelope = envelope
        self._parsing = parsing
        self._index = -1
        self._open: str | None = None

    def begin(self, usage: UsageBody) -> bytes:
        """See Telling."""
        message = self._message([], NO_END, usage)
        return event("message_start", {"type": "message_start", "message": message})

    def take(self, parts: Sequence[AnswerPart]) -> bytes:
        """See Telling."""
        return b"".join(self._told(part) for part in parts)

    def end(self, ending: Ending, usage: UsageBody) -> bytes:
        """See Telling."""
        delta = {"stop_reason": _stop_reason(ending), "stop_sequence": ending.stop}
        told = {"type": "message_delta", "delta": delta, "usage": _usage(usage)}
        return b"".join(
            (
                self._close(),
                event("message_delta", told),
                event("message_stop", {"type": "message_stop"}),
            )
        )

    def failed(self, error: SplitserveError) -> bytes:
        """See Telling."""
        return b"event: error\ndata: %b\n\n" % message_error_body(error, self._envelope.id)

    def whole(self, parts: GatheredParts, ending: Ending, usage: UsageBody) -> bytes:
        """See Telling."""
        blocks: list[dict[str, Any]] = []
        if parts.thought:
            blocks.append({"type": _THINKING, "thinking": parts.thought, "signature": ""})
        if parts.content:
            blocks.append({"type": _TEXT, "text": parts.content, "citations": None})
        for call in parts.calls:
            given = msgspec.Raw(call.arguments.encode())  # JSON, as readers of calls tell them
            blocks.append({"type": _TOOL, "id": self._new_id(), "name": call.name, "input": given})
        return msgspec.json.encode(self._message(blocks, ending, usage))

    def _told(self, part: AnswerPart) -> bytes:
        match part:
            case Content(text=text):
                return self._in(_TEXT, {"text": ""}) + self._delta("text_delta", text=text)
            case Thought(text=text):
                opened = self._in(_THINKING, {"thinking": "", "signature": ""})
                return opened + self._delta("thinking_delta", thinking=text)
            case CallBegun(name=name):
                return self._close() + self._in(
                    _TOOL, {"id": self._new_id(), "name": name, "input": {}}
                )
            case CallArguments(text=text):
                return self._delta("input_json_delta", partial_json=text)
            case CallEnded():
                return self._close()
            case CallBroken(rest=rest):
                return self._close() + (self._told(Content(rest)) if rest else b"")

    def _in(self, kind: str, beginning: dict[str, Any]) -> bytes:
        """A block of this kind is open."""
        if self._open == kind:
            return b""
        closed = self._close()
        self._open = kind
        self._index += 1
        block = {"type": kind, **beginning}
        told = {"type": "content_block_start", "index": self._index, "content_block": block}
        return closed + event("content_block_start", told)

    def _delta(self, kind: str, **text: str) -> bytes:
        delta = {"type": kind, **text}
        told = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return event("content_block_delta", told)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        told = {"type": "content_block_stop", "index": self._index}
        return event("content_block_stop", told)

    def _message(
        self, blocks: list[dict[str, Any]], ending: Ending, usage: UsageBody
    ) -> dict[str, Any]:
        return {
            "id": self._envelope.id,
            "type": "message",
            "role": "assistant",
            "model": self._envelope.model,
            "content": blocks,
            "stop_reason": _stop_reason(ending),
            "stop_sequence": ending.stop,
            "usage": _usage(usage),
        }

    def _new_id(self) -> str:
        assert self._parsing.tools is not None, "calls are looked for in a format of tools"
        return new_call_id(self._parsing.tools, unique_hex)


def _stop_reason(ending: Ending) -> str | None:
    if ending.reason is not FinishReason.STOP:
        return None if ending.reason is None else "max_tokens"
    if ending.stop is not None:
        return "stop_sequence"
    return "tool_use" if ending.has_called else "end_turn"


def _usage(usage: UsageBody) -> dict[str, int]:
    """What came from a cache is no input there."""
    cached = usage.prompt_tokens_details.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }
