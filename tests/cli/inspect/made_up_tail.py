"""Requests of a fleet in which one prefill worker is slow, as its router tells them."""

from __future__ import annotations

from protos import router_admin_pb2, worker_pb2
from tests.cli.inspect.made_up_traces import traced_alone, traced_pair

SLOW = "prefill-1"


def one_pair(number: int, *, prefill: str, waits_ms: float) -> router_admin_pb2.RequestTrace:
    """Like `traced_pair`, after `waits_ms` in the line of that prefill worker."""
    trace = traced_pair(f"r{number}")
    moved_ms = waits_ms - trace.legs[0].stages.source_queue_ms
    trace.legs[0].prefill_worker = trace.timing.prefill_worker = prefill
    trace.legs[0].stages.source_queue_ms = waits_ms
    trace.legs[0].stages.first_token_ms += moved_ms
    for stamped in (trace.legs[0], trace):
        stamped.first_token_ms += moved_ms
    trace.arrival.tenant = ("acme", "umbrella")[number % 2]
    return trace


def with_a_slow_worker(num_requests: int = 120) -> list[router_admin_pb2.RequestTrace]:
    """Every fourth went to it, and waited two seconds longer than others."""
    traces = []
    for number in range(num_requests):
        is_slow = number % 4 == 3
        waits_ms = 100.0 + number % 7 + 2000.0 * is_slow
        traces.append(one_pair(number, prefill=SLOW if is_slow else "prefill-0", waits_ms=waits_ms))
    return [*traces, traced_alone()]


def failed(code: str) -> router_admin_pb2.RequestTrace:
    """Before its first token."""
    return router_admin_pb2.RequestTrace(
        request_id="f",
        arrival=router_admin_pb2.Arrival(tenant="acme", end=code),
        read_ms=1.0,
        ended_ms=60_000.0,
        prompt_tokens=10,
        legs=[router_admin_pb2.TraceLeg(decode_worker="decode-0", sent_ms=2.0, end=code)],
    )


def without_stages() -> router_admin_pb2.RequestTrace:
    """At a worker that says none."""
    trace = traced_alone("v")
    trace.legs[1].stages.CopyFrom(worker_pb2.PromptStages())
    trace.legs[1].ClearField("stages")
    return trace
