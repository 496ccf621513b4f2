"""A process's tracing whose spans stay here: in the place of cluster/tracing/tracing.py."""

from __future__ import annotations

import time

from cluster.deadline import Clock
from cluster.tracing.context import TraceContext
from cluster.tracing.part import TracePart
from cluster.tracing.span import FinishedSpan
from cluster.tracing.wall_time import WallTime

CALLER = TraceContext(b"t" * 16, b"callers!", state="a=1")


class KeptSpans:
    """`part` as of a Tracing."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.all: list[FinishedSpan] = []

    def part(self, context: TraceContext) -> TracePart:
        return TracePart(context, emit=self.all.extend, wall=lambda: WallTime(self._clock))

    def named(self, name: str) -> list[FinishedSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> FinishedSpan:
        (span,) = self.named(name)
        return span


def is_inside(inner: FinishedSpan, outer: FinishedSpan) -> bool:
    return outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns
