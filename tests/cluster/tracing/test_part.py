"""Spans of one process's part of a request."""

from collections import deque

from cluster.tracing.context import TraceContext
from cluster.tracing.part import SpanFacts, TracePart
from cluster.tracing.span import FinishedSpan, SpanKind
from cluster.tracing.wall_time import WallTime
from tests.manual_clock import ManualClock

CALLER = TraceContext(b"t" * 16, b"callers!", state="a=1")
NOON_NS = 1_700_000_000_000_000_000


def parts(clock: ManualClock, wall_ns: int = NOON_NS) -> tuple[TracePart, list[FinishedSpan]]:
    sent: list[FinishedSpan] = []
    drawn = deque(bytes([number]) * 8 for number in range(1, 9))
    part = TracePart(
        CALLER,
        emit=sent.extend,
        wall=lambda: WallTime(clock, lambda: wall_ns),
        draw=lambda size: drawn.popleft(),
    )
    return part, sent


def test_spans_within_are_under_the_whole_which_is_under_the_caller() -> None:
    clock = ManualClock()
    part, sent = parts(clock)
    leg = part.new_span_id()
    part.whole("request", 1000.0, 1003.0, SpanFacts(kind=SpanKind.SERVER, attributes={"n": 1}))
    part.add("leg", 1001.0, 1002.0, span_id=leg)
    part.add("step", 1001.0, 1001.5, under=leg)
    assert sent == []
    part.send()
    whole, inner, innermost = sent
    assert (whole.parent_id, whole.span_id) == (b"callers!", part.span_id)
    assert (inner.parent_id, inner.span_id) == (part.span_id, leg)
    assert innermost.parent_id == leg
    assert {(span.trace_id, span.state) for span in sent} == {(b"t" * 16, "a=1")}
    assert (whole.kind, whole.attributes) == (SpanKind.SERVER, {"n": 1})


def test_stamps_become_the_time_of_day_as_it_is_when_the_request_is_over() -> None:
    clock = ManualClock()
    part, sent = parts(clock)
    part.whole("request", 999.5, 1000.0)
    part.send()
    assert (sent[0].start_ns, sent[0].end_ns) == (NOON_NS - 500_000_000, NOON_NS)


def test_a_stretch_that_ends_before_it_begins_takes_no_time() -> None:
    part, sent = parts(ManualClock())
    part.whole("request", 1000.0, 999.0)
    part.send()
    assert sent[0].start_ns == sent[0].end_ns


def test_what_was_sent_is_not_sent_again() -> None:
    part, sent = parts(ManualClock())
    part.whole("request", 1000.0, 1001.0)
    part.send()
    part.send()
    assert len(sent) == 1


def test_the_next_process_is_told_of_the_span_that_asks_it() -> None:
    part, _ = parts(ManualClock())
    leg = part.new_span_id()
    assert part.context(leg) == TraceContext(b"t" * 16, leg, state="a=1")
