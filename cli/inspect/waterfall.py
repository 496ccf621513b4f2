"""One request as spans: when it was where, and for how long.

What a worker says are durations by its own clock. They are laid between two messages of the
router's: the request was sent before the worker read it, and a word came after the worker wrote it.
What is left over, hops and loops, is shared out evenly before and behind; so is it between a decode
worker and the prefill worker that it asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protos import router_admin_pb2, worker_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSpan:
    """In milliseconds since the request's first byte."""

    name: str
    where: str
    """The process: "router", or a worker's name."""
    start_ms: float
    took_ms: float
    depth: int = 1
    """Below how many others it hangs."""
    detail: str = ""

    @property
    def end_ms(self) -> float:
        """When it was over."""
        return self.start_ms + self.took_ms


def spans_of(trace: router_admin_pb2.RequestTrace) -> list[DrawnSpan]:
    """In the order in which they begin below each other; the whole request first."""
    whole = DrawnSpan(name="request", where="router", start_ms=0.0, took_ms=_end_of(trace), depth=0)
    return [
        whole,
        *_at_router(trace),
        *(span for leg in trace.legs for span in _of_leg(trace, leg)),
    ]


def _end_of(trace: router_admin_pb2.RequestTrace) -> float:
    """Of one that runs: the last that is known of it."""
    if trace.HasField("ended_ms"):
        return trace.ended_ms
    stamps = [trace.read_ms, trace.admitted_ms, trace.first_token_ms]
    return max(stamps + [max(leg.sent_ms, leg.computed_ms) for leg in trace.legs])


def _at_router(trace: router_admin_pb2.RequestTrace) -> Iterator[DrawnSpan]:
    """Until it was sent the first time; a stage that it did not get through lasts to its end."""
    sent_ms = trace.legs[0].sent_ms if trace.legs else _end_of(trace)
    read_ms = trace.read_ms if trace.HasField("read_ms") else sent_ms
    admitted_ms = trace.admitted_ms if trace.HasField("admitted_ms") else sent_ms
    admitted_ms = max(read_ms, min(admitted_ms, sent_ms))
    yield _between("router.read", "router", 0.0, read_ms, "read, checked, made tokens")
    yield _between("router.queue", "router", read_ms, admitted_ms, trace.arrival.lacked)
    yield _between("router.route", "router", admitted_ms, sent_ms, trace.reason)


def _of_leg(
    trace: router_admin_pb2.RequestTrace, leg: router_admin_pb2.TraceLeg
) -> Iterator[DrawnSpan]:
    end_ms = leg.ended_ms if leg.HasField("ended_ms") else _end_of(trace)
    yield _between("worker", leg.decode_worker, leg.sent_ms, end_ms, _end_words(leg))
    if not leg.HasField("stages"):
        if leg.HasField("first_token_ms"):
            first_ms = leg.first_token_ms
            yield _between("first token", leg.decode_worker, leg.sent_ms, first_ms, depth=2)
            yield _between("decode", leg.decode_worker, first_ms, end_ms, depth=2)
        return
    zero_ms = leg.sent_ms + _slack_ms(leg) / 2
    yield from _at_worker(trace, leg, zero_ms)
    first_ms = zero_ms + leg.stages.first_token_ms
    if leg.stages.HasField("first_token_ms"):
        yield _between(
            "decode", leg.decode_worker, first_ms, max(first_ms, end_ms), _decoded(trace, leg), 2
        )


def _slack_ms(leg: router_admin_pb2.TraceLeg) -> float:
    """Between sending and reading, to the worker and back: the least that any two words leave."""
    said_ms = leg.stages.said_ms
    first_ms = leg.stages.first_token_ms
    bounds = []
    if leg.HasField("ended_ms") and not leg.end:
        bounds.append(leg.ended_ms - leg.sent_ms - said_ms)
    if leg.HasField("computed_ms"):
        bounds.append(leg.computed_ms - leg.sent_ms - min(said_ms, first_ms or said_ms))
    return max(0.0, min(bounds, default=0.0))


def _at_worker(
    trace: router_admin_pb2.RequestTrace, leg: router_admin_pb2.TraceLeg, zero_ms: float
) -> Iterator[DrawnSpan]:
    """Until the first token, and the transfer, which may last longer."""
    stages, worker = leg.stages, leg.decode_worker
    if not stages.HasField("reserved_ms"):
        yield from _computed_here(trace, leg, zero_ms)
        return
    reserved_ms, asked_ms = stages.reserved_ms, max(stages.reserved_ms, stages.asked_ms)
    yield _between("reserve", worker, zero_ms, zero_ms + reserved_ms, "KV blocks", 2)
    failed = stages.num_failed_sources
    tried = f"{failed} prefill workers were given up" if failed else "handshake"
    yield _between("ask", worker, zero_ms + reserved_ms, zero_ms + asked_ms, tried, 2)
    source = trace.timing.prefill_worker or leg.prefill_worker
    yield from _at_source(stages, source, zero_ms + asked_ms)
    if stages.HasField("offered_ms"):
        offered_ms = zero_ms + stages.offered_ms
        last_ms = max(stages.offered_ms, stages.last_block_ms, stages.first_block_ms)
        yield _between(
            "kv.transfer", worker, offered_ms, zero_ms + last_ms, _transfer(trace, stages), 2
        )


def _computed_here(
    trace: router_admin_pb2.RequestTrace, leg: router_admin_pb2.TraceLeg, zero_ms: float
) -> Iterator[DrawnSpan]:
    """A prompt of nobody else's: its engine says how long it waited and computed."""
    timing, stages = trace.timing, leg.stages
    if not stages.HasField("first_token_ms"):
        return
    computing_ms = min(timing.prefill_ms, stages.first_token_ms) or stages.first_token_ms
    began_ms = zero_ms + stages.first_token_ms - computing_ms
    worker = leg.decode_worker
    yield _between("prefill.queue", worker, zero_ms, began_ms, depth=2)
    end_ms = zero_ms + stages.first_token_ms
    yield _between("prefill.compute", worker, began_ms, end_ms, _cached(trace), 2)


def _at_source(
    stages: worker_pb2.PromptStages, source: str, asked_ms: float
) -> Iterator[DrawnSpan]:
    """As that worker measured, in the middle of what its reader saw."""
    queue_ms, compute_ms = stages.source_queue_ms, stages.source_prefill_ms
    seen_ms = max(0.0, stages.first_token_ms - stages.asked_ms)
    hop_ms = max(0.0, seen_ms - queue_ms - compute_ms) / 2
    began_ms = asked_ms + hop_ms
    if queue_ms + compute_ms > 0:
        yield _between("prefill.queue", source, began_ms, began_ms + queue_ms, depth=2)
        began_ms += queue_ms
        yield _between("prefill.compute", source, began_ms, began_ms + compute_ms, depth=2)


def _between(
    name: str, where: str, start_ms: float, end_ms: float, detail: str = "", depth: int = 1
) -> DrawnSpan:
    took_ms = max(0.0, end_ms - start_ms)
    return DrawnSpan(
        name=name, where=where, start_ms=start_ms, took_ms=took_ms, detail=detail, depth=depth
    )


def _end_words(leg: router_admin_pb2.TraceLeg) -> str:
    return f"left: {leg.end}" if leg.end else ""


def _cached(trace: router_admin_pb2.RequestTrace) -> str:
    return f"{trace.usage.cached_tokens} of {trace.prompt_tokens} tokens were cached"


def _decoded(trace: router_admin_pb2.RequestTrace, leg: router_admin_pb2.TraceLeg) -> str:
    if leg.end or not trace.HasField("usage"):
        return ""
    return f"{trace.usage.completion_tokens} tokens, {trace.timing.itl_ms:.1f} ms each"


def _transfer(trace: router_admin_pb2.RequestTrace, stages: worker_pb2.PromptStages) -> str:
    timing = trace.timing
    words = [f"{timing.kv_bytes / 1e6:.1f} MB", timing.kv_transport] if timing.kv_bytes else []
    if stages.HasField("first_block_ms"):
        words.append(f"first block after {stages.first_block_ms - stages.offered_ms:.1f} ms")
    return ", ".join(filter(None, words))
