"""W3C Trace Context: the trace that a request is part of, as its caller and our processes say.

What a caller says is written down and trusted for nothing else. What is malformed is as if it had
not been said: no request fails for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protos import handoff_pb2

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8
MAX_STATE_CHARS = 512
MAX_STATE_MEMBERS = 32
_MAX_STATE_READ = 4 * MAX_STATE_CHARS
_SAMPLED = 0x01
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_KEY = r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_STATE_MEMBER = re.compile(
    rf"{_KEY}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)

DrawBytes = Callable[[int], bytes]
"""So many bytes that nobody was given before; a test gives its own."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A trace, and the span in it under which the reader's own belong."""

    trace_id: bytes
    """16 bytes."""
    span_id: bytes = b""
    """8 bytes, the caller's; empty: the trace begins here."""
    is_sampled: bool = True
    """The caller keeps what it does for this trace."""
    state: str = ""
    """`tracestate`, as it came."""

    @property
    def traceparent(self) -> str:
        """As a header says it."""
        flags = _SAMPLED if self.is_sampled else 0
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{flags:02x}"

    @property
    def headers(self) -> dict[str, str]:
        """For a process that is no one of ours, of a trace that has a span of ours."""
        told = {"traceparent": self.traceparent}
        return told | {"tracestate": self.state} if self.state else told

    def under(self, span_id: bytes) -> TraceContext:
        """For whoever is asked by that span."""
        return TraceContext(self.trace_id, span_id, self.is_sampled, self.state)


def new_trace(draw: DrawBytes = os.urandom) -> TraceContext:
    """Of a request whose client names none."""
    return TraceContext(draw(TRACE_ID_BYTES))


def context_of(parents: Sequence[str], states: Sequence[str] = ()) -> TraceContext | None:
    """Of all headers named `traceparent` and `tracestate`. None: there is no parent, there are two,
    or it is malformed. A malformed state is left out."""
    if len(parents) != 1 or (said := _PARENT.fullmatch(parents[0].strip(" \t"))) is None:
        return None
    version, trace_id, span_id, flags, more = said.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    is_sampled = bool(int(flags, 16) & _SAMPLED)
    return TraceContext(
        bytes.fromhex(trace_id), bytes.fromhex(span_id), is_sampled, _state_of(states)
    )


def _state_of(headers: Sequence[str]) -> str:
    """In one line; empty where it is malformed or too long, which is seen before it is split."""
    if sum(map(len, headers)) > _MAX_STATE_READ:
        return ""
    members = [member.strip(" \t") for line in headers for member in line.split(",")]
    members = [member for member in members if member]
    state = ",".join(members)
    if len(members) > MAX_STATE_MEMBERS or len(state) > MAX_STATE_CHARS:
        return ""
    keys = {member.partition("=")[0] for member in members}
    is_sound = all(_STATE_MEMBER.fullmatch(member) for member in members)
    return state if is_sound and len(keys) == len(members) else ""


def context_to_wire(context: TraceContext) -> handoff_pb2.TraceParent:
    """For the next process; only what is sampled is told."""
    return handoff_pb2.TraceParent(
        trace_id=context.trace_id, span_id=context.span_id, trace_state=context.state
    )


def context_from_wire(message: handoff_pb2.TraceParent) -> TraceContext | None:
    """None for what no process of ours says."""
    sizes = len(message.trace_id), len(message.span_id)
    if sizes != (TRACE_ID_BYTES, SPAN_ID_BYTES) or len(message.trace_state) > MAX_STATE_CHARS:
        return None
    return TraceContext(message.trace_id, message.span_id, state=message.trace_state)
