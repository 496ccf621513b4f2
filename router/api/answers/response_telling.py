"""Answers of /v1/responses: nothing of them is stored.

response.created -> .in_progress -> (output_item.added -> ... -> output_item.done)* -> .completed
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgspec

from cluster.errors import SplitserveError, status_of
from cluster.generation import FinishReason
from cluster.identity import unique_hex
from router.api.answers.bodies import UsageBody
from router.api.answers.ending import Ending
from router.api.answers.gathered_parts import GatheredParts
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

_MESSAGE, _REASONING, _CALL = "message", "reasoning", "function_call"
_PART_TYPES = {_MESSAGE: "output_text", _REASONING: "reasoning_text"}
_ID_PREFIXES = {_MESSAGE: "msg", _REASONING: "rs", _CALL: "fc"}


class ResponseTelling:
    """See Telling. `asked`: what an answer says again of its request."""

    def __init__(self, asked: dict[str, Any], envelope: Envelope, parsing: Parsing) -> None:
        self._asked = asked
        self._envelope = envelope
        self._parsing = parsing
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._item: dict[str, Any] | None = None
        """The one that is open: the last of the output, when it is done."""
        self._pieces: list[str] = []

    def begin(self, usage: UsageBody) -> bytes:
        """See Telling."""
        return self._begin()

    def _begin(self) -> bytes:
        return self._state("response.created", "in_progress") + self._state(
            "response.in_progress", "in_progress"
        )

    def take(self, parts: Sequence[AnswerPart]) -> bytes:
        """See Telling."""
        return b"".join(self._told(part) for part in parts)

    def end(self, ending: Ending, usage: UsageBody) -> bytes:
        """See Telling."""
        status = _status(ending)
        return self._close(status) + self._state(f"response.{status}", status, usage)

    def failed(self, error: SplitserveError) -> bytes:
        """See Telling. OpenAI's client reads no stream that does not begin with its beginning."""
        told = {"code": status_of(error).code, "message": error.message}
        closed = self._close("incomplete") if self._number else self._begin()
        return closed + self._state("response.failed", "failed", error=told)

    def whole(self, parts: GatheredParts, ending: Ending, usage: UsageBody) -> bytes:
        """See Telling."""
        status = _status(ending)
        if parts.thought:
            self._output.append(self._text_item(_REASONING, parts.thought, status="completed"))
        if parts.content:
            self._output.append(self._text_item(_MESSAGE, parts.content, status=status))
        self._output += [
            self._call_item(call.name, call.arguments, "completed") for call in parts.calls
        ]
        return msgspec.json.encode(self._response(status, usage))

    def _told(self, part: AnswerPart) -> bytes:
        match part:
            case Content(text=text):
                return self._text(_MESSAGE, text)
            case Thought(text=text):
                return self._text(_REASONING, text)
            case CallBegun(name=name):
                return self._close() + self._open(self._call_item(name, "", "in_progress"))
            case CallArguments(text=text):
                self._pieces.append(text)
                return self._event("response.function_call_arguments.delta", delta=text)
            case CallEnded():
                return self._close()
            case CallBroken(rest=rest):
                closed = self._close("incomplete")
                return closed + (self._text(_MESSAGE, rest) if rest else b"")

    def _text(self, kind: str, text: str) -> bytes:
        opened = b""
        if self._item is None or self._item["type"] != kind:
            closed = self._close()
            item = self._text_item(kind, None, status="in_progress")
            opened = closed + self._open(item)
            opened += self._event(
                "response.content_part.added", content_index=0, part=_part(kind, "")
            )
        self._pieces.append(text)
        name = f"response.{_PART_TYPES[kind]}.delta"
        return opened + self._event(name, content_index=0, delta=text, **_logprobs(kind))

    def _open(self, item: dict[str, Any]) -> bytes:
        self._item, self._pieces = item, []
        told = {"output_index": len(self._output), "item": item}
        return self._numbered("response.output_item.added", told)

    def _close(self, status: str = "completed") -> bytes:
        """What is open is done."""
        item = self._item
        if item is None:
            return b""
        text, kind = "".join(self._pieces), item["type"]
        done = {**item, "status": status}
        if kind == _CALL:
            done["arguments"] = text
            events = self._event(
                "response.function_call_arguments.done", name=item["name"], arguments=text
            )
        else:
            part = _part(kind, text)
            done["content"] = [part]
            name = f"response.{_PART_TYPES[kind]}.done"
            events = self._event(name, content_index=0, text=text, **_logprobs(kind))
            events += self._event("response.content_part.done", content_index=0, part=part)
        told = {"output_index": len(self._output), "item": done}
        events += self._numbered("response.output_item.done", told)
        self._output.append(done)
        self._item = None
        return events

    def _event(self, event_name: str, /, **data: Any) -> bytes:
        """About the open item."""
        assert self._item is not None, "an event about an item that is not open"
        place = {"output_index": len(self._output), "item_id": self._item["id"]}
        return self._numbered(event_name, {**place, **data})

    def _state(
        self,
        name: str,
        status: str,
        usage: UsageBody | None = None,
        error: dict[str, str] | None = None,
    ) -> bytes:
        return self._numbered(name, {"response": self._response(status, usage, error)})

    def _numbered(self, name: str, data: dict[str, Any]) -> bytes:
        told = {"type": name, "sequence_number": self._number, **data}
        self._number += 1
        return event(name, told)

    def _text_item(self, kind: str, text: str | None, *, status: str) -> dict[str, Any]:
        content = [] if text is None else [_part(kind, text)]
        item: dict[str, Any] = {"id": _item_id(kind), "type": kind, "status": status}
        item["content"] = content
        beside: dict[str, Any] = {"role": "assistant"} if kind == _MESSAGE else {"summary": []}
        return item | beside

    def _call_item(self, name: str, arguments: str, status: str) -> dict[str, Any]:
        assert self._parsing.tools is not None, "calls are looked for in a format of tools"
        return {
            "id": _item_id(_CALL),
            "type": _CALL,
            "status": status,
            "call_id": new_call_id(self._parsing.tools, unique_hex),
            "name": name,
            "arguments": arguments,
        }

    def _response(
        self, status: str, usage: UsageBody | None = None, error: dict[str, str] | None = None
    ) -> dict[str, Any]:
        is_cut = status == "incomplete"
        return {
            "id": self._envelope.id,
            "object": "response",
            "created_at": self._envelope.created_s,
            "model": self._envelope.model,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": list(self._output),
            "usage": None if usage is None else _usage(usage),
            "store": False,
            "previous_response_id": None,
            "instructions": None,
            **self._asked,
        }


def response_telling(
    asked: dict[str, Any],
) -> functools.partial[ResponseTelling]:
    """Makes the telling of an answer to a request that said this."""
    return functools.partial(ResponseTelling, asked)


def _status(ending: Ending) -> str:
    return "incomplete" if ending.reason is FinishReason.LENGTH else "completed"


def _part(kind: str, text: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": _PART_TYPES[kind], "text": text}
    return part | ({"annotations": [], "logprobs": []} if kind == _MESSAGE else {})


def _logprobs(kind: str) -> dict[str, Any]:
    return {"logprobs": []} if kind == _MESSAGE else {}


def _item_id(kind: str) -> str:
    return f"{_ID_PREFIXES[kind]}_{unique_hex()}"


def _usage(usage: UsageBody) -> dict[str, Any]:
    details = usage.completion_tokens_details
    num_thoughts = 0 if details is msgspec.UNSET else details.reasoning_tokens
    cached = usage.prompt_tokens_details.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": num_thoughts},
        "total_tokens": usage.total_tokens,
    }
