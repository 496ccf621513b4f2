"""What one process does for one traced request: its spans, made once that is over.

    made when the request comes -> add* -> send, once: they wait for the exporting thread

Nothing is stamped or kept for it while the request runs: its spans are laid between stamps that
there are anyway.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cluster.tracing.context import SPAN_ID_BYTES, DrawBytes, TraceContext
from cluster.tracing.span import Attribute, FinishedSpan, SpanKind
from cluster.tracing.wall_time import WallTime


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFacts:
    """Of a span, beside its name and its times."""

    kind: SpanKind = SpanKind.INTERNAL
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error: str | None = None
    """In words; None: it went well."""


PLAIN = SpanFacts()


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A span by the process's own clock."""

    name: str
    start_s: float
    end_s: float
    span_id: bytes
    parent_id: bytes
    facts: SpanFacts


class TracePart:
    """From one thread only."""

    def __init__(
        self,
        context: TraceContext,
        *,
        emit: Callable[[list[FinishedSpan]], None],
        wall: Callable[[], WallTime],
        draw: DrawBytes = os.urandom,
    ) -> None:
        """`context`: of whoever asked. `emit` takes what is finished, and never waits."""
        self._caller = context
        self._emit, self._wall, self._draw = emit, wall, draw
        self._stretches: list[_Stretch] = []
        self.span_id = self.new_span_id()
        """Of the span that is the whole of this process's part."""

    @property
    def trace_id(self) -> bytes:
        """Of the whole request."""
        return self._caller.trace_id

    def new_span_id(self) -> bytes:
        """Of a span that is added later, where another process has to know it before."""
        return self._draw(SPAN_ID_BYTES)

    def context(self, span_id: bytes) -> TraceContext:
        """For a process that is asked by that span of ours."""
        return self._caller.under(span_id)

    def whole(self, name: str, start_s: float, end_s: float, facts: SpanFacts = PLAIN) -> None:
        """The span that all others of this part are in, once."""
        parent = self._caller.span_id
        self._stretches.append(_Stretch(name, start_s, end_s, self.span_id, parent, facts))

    def add(
        self,
        name: str,
        start_s: float,
        end_s: float,
        facts: SpanFacts = PLAIN,
        *,
        span_id: bytes | None = None,
        under: bytes | None = None,
    ) -> None:
        """One within. `under`: which other of ours; None: the whole."""
        own, parent = span_id or self.new_span_id(), under or self.span_id
        self._stretches.append(_Stretch(name, start_s, end_s, own, parent, facts))

    def send(self) -> None:
        """They are complete."""
        wall = self._wall()
        self._emit([self._finished(stretch, wall) for stretch in self._stretches])
        self._stretches.clear()

    def _finished(self, stretch: _Stretch, wall: WallTime) -> FinishedSpan:
        start_ns = wall.ns(stretch.start_s)
        return FinishedSpan(
            trace_id=self._caller.trace_id,
            span_id=stretch.span_id,
            parent_id=stretch.parent_id,
            state=self._caller.state,
            name=stretch.name,
            kind=stretch.facts.kind,
            start_ns=start_ns,
            end_ns=max(start_ns, wall.ns(stretch.end_s)),
            attributes=stretch.facts.attributes,
            error=stretch.facts.error,
        )
