"""From a router's stamps and a worker's durations to spans on one axis."""

from __future__ import annotations

import pytest

from cli.inspect.waterfall import DrawnSpan, spans_of
from protos import router_admin_pb2, worker_pb2
from tests.cli.inspect.made_up_traces import traced_alone, traced_pair


def by_name(spans: list[DrawnSpan]) -> dict[str, DrawnSpan]:
    return {span.name: span for span in spans}


def test_a_pair_is_drawn_as_router_prefill_transfer_and_decode() -> None:
    spans = spans_of(traced_pair())
    assert [(span.name, span.where) for span in spans] == [
        ("request", "router"),
        ("router.read", "router"),
        ("router.queue", "router"),
        ("router.route", "router"),
        ("worker", "decode-0"),
        ("reserve", "decode-0"),
        ("ask", "decode-0"),
        ("prefill.queue", "prefill-0"),
        ("prefill.compute", "prefill-0"),
        ("kv.transfer", "decode-0"),
        ("decode", "decode-0"),
    ]
    assert spans[0].end_ms == 6901.0
    assert "134.2 MB" in by_name(spans)["kv.transfer"].detail


def test_what_hangs_below_a_span_lies_within_it() -> None:
    for trace in (traced_pair(), traced_alone()):
        spans = spans_of(trace)
        for worker in (span for span in spans if span.name == "worker" and not span.detail):
            below = [s for s in spans if s.depth == 2]
            assert below
            assert all(worker.start_ms <= span.start_ms <= worker.end_ms for span in below)
            assert all(span.end_ms <= worker.end_ms + 1e-6 for span in below)


def test_the_way_to_a_worker_and_back_is_shared_out_evenly() -> None:
    """It was sent at 4, its word came at 371, and said 365 ms after it was read: 2 ms of ways."""
    spans = by_name(spans_of(traced_pair()))
    assert spans["reserve"].start_ms == 5.0
    assert spans["decode"].start_ms == 370.0
    # asked at 5 + 5, the first token at 370; the source measured 124 + 234 of these 360 ms
    assert spans["prefill.queue"].start_ms == 11.0
    assert spans["prefill.compute"].end_ms == 369.0


def test_a_clock_that_is_years_away_moves_nothing() -> None:
    """Of the worker's clock only differences come; a word that is longer than the time between
    two messages leaves no way at all, and never a negative one."""
    trace = traced_pair()
    trace.legs[0].stages.said_ms = 1e7
    spans = by_name(spans_of(trace))
    assert spans["reserve"].start_ms == trace.legs[0].sent_ms
    assert all(span.took_ms >= 0 for span in spans.values())


def test_a_worker_that_was_lost_is_followed_by_the_next() -> None:
    spans = [span for span in spans_of(traced_alone()) if span.name == "worker"]
    assert [(span.where, span.detail) for span in spans] == [
        ("decode-0", "left: worker_lost"),
        ("decode-1", ""),
    ]
    assert spans[0].end_ms <= spans[1].start_ms


def test_a_worker_that_says_nothing_of_stages_is_drawn_by_what_came_of_it() -> None:
    """An older one, or another engine's."""
    trace = traced_alone()
    trace.legs[1].ClearField("stages")
    spans = by_name(spans_of(trace))
    assert (spans["first token"].start_ms, spans["first token"].end_ms) == (42.0, 89.0)
    assert spans["decode"].end_ms == 133.0


@pytest.mark.parametrize("stamps", [{}, {"read_ms": 2.0}, {"read_ms": 2.0, "admitted_ms": 9.0}])
def test_a_request_that_came_to_no_worker_ends_where_it_stood(stamps: dict[str, float]) -> None:
    trace = router_admin_pb2.RequestTrace(request_id="x", ended_ms=10.0, **stamps)
    spans = spans_of(trace)
    assert len(spans) == 4
    assert spans[-1].end_ms == 10.0
    assert sum(span.took_ms for span in spans[1:]) == pytest.approx(10.0)


def test_a_request_that_runs_is_drawn_as_far_as_it_has_come() -> None:
    leg = router_admin_pb2.TraceLeg(
        decode_worker="decode-0", sent_ms=3.0, computed_ms=50.0, first_token_ms=50.0,
        stages=worker_pb2.PromptStages(said_ms=47.0, first_token_ms=47.0),
    )  # fmt: skip
    trace = router_admin_pb2.RequestTrace(
        request_id="x", read_ms=1.0, admitted_ms=2.0, first_token_ms=51.0, legs=[leg]
    )
    assert spans_of(trace)[0].end_ms == 51.0
