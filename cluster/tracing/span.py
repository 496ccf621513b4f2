"""A span that is over, as it waits to be exported."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

Attribute = str | bool | int | float | tuple[str, ...]


class SpanKind(enum.Enum):
    """Which side of a call it is."""

    INTERNAL = "internal"
    SERVER = "server"
    """Somebody asked for it."""
    CLIENT = "client"
    """Another process was asked meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSpan:
    """Changed by nobody any more; read by the thread that exports it."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    """Empty: it is the first of its trace."""
    state: str
    """`tracestate`."""
    name: str
    kind: SpanKind = SpanKind.INTERNAL
    start_ns: int
    """Since 1970, as `end_ns`."""
    end_ns: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error: str | None = None
    """In words; None: it went well."""
