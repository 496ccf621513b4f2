"""A routing decision, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.json_format import MessageToDict

from cli.table import Table
from protos import generation_pb2, router_admin_pb2

_TERMS = ("queue", "prefill", "transfer", "handoff", "interference", "decode", "memory")
NOT_ROUTED = "not_routed"
"""The reason of a request that went to no worker."""


def fields_of(decision: router_admin_pb2.Decision) -> dict[str, object]:
    """As in the proto; 0 and "" are told, an outcome that is not known is not."""
    return MessageToDict(
        decision,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def table_of(decision: router_admin_pb2.Decision) -> str:
    """What it met, what was decided, what was foretold, and what came of it."""
    if decision.reason == NOT_ROUTED:
        parts = [f"{decision.request_id}: at no worker", *_arrival(decision), _end(decision)]
    else:
        parts = [prices_of(decision), *_arrival(decision), *_foretold(decision), _outcome(decision)]
    return "\n".join(parts)


def prices_of(decision: router_admin_pb2.Decision) -> str:
    """One line per candidate with its terms in milliseconds, `*` before the chosen one."""
    lines = [
        f"{decision.request_id}: {decision.prompt_tokens} prompt tokens, {decision.reason}",
        str(_prices(decision)),
    ]
    lines += [
        f"{worker.worker_id}: {worker.matched_tokens} tokens cached, "
        f"{worker.waiting_tokens} waiting, {worker.num_running} running"
        for worker in decision.workers
    ]
    lines += [f"note: {note}" for note in decision.notes]
    return "\n".join(lines)


def _prices(decision: router_admin_pb2.Decision) -> Table:
    table = Table("CANDIDATE", "TOTAL MS", *map(str.upper, _TERMS))
    for candidate in decision.candidates:
        mark = "*" if candidate.chosen else " "
        name = f"{mark} {candidate.prefill_worker or '(alone)'} -> {candidate.decode_worker}"
        terms = [getattr(candidate, f"{term}_ms") for term in _TERMS]
        table.add(name, *(f"{price:.2f}" for price in (candidate.total_ms, *terms)))
    return table


def _arrival(decision: router_admin_pb2.Decision) -> Iterator[str]:
    if not decision.HasField("arrival"):
        return
    met = decision.arrival
    who = f"class {met.priority}, " + (f"tenant {met.tenant}" if met.tenant else "no tenant")
    if not met.waited:
        yield f"{who}: a place at once"
        return
    yield (
        f"{who}: {met.num_before:.0f} before it, {met.num_waiting} in line, "
        f"{met.line_ms:.1f} ms expected; {met.lacked}"
    )


def _foretold(decision: router_admin_pb2.Decision) -> Iterator[str]:
    if decision.HasField("foretold"):
        yield f"foretold: {_sum(decision.foretold)}"


def _outcome(decision: router_admin_pb2.Decision) -> str:
    if not decision.HasField("timing"):
        return _end(decision)
    usage = decision.usage
    cached = f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens were cached"
    return f"outcome:  {_sum(decision.timing)}; {cached}"


def _end(decision: router_admin_pb2.Decision) -> str:
    """Where it has no timing."""
    end, error = decision.arrival.end, decision.arrival.error
    if not end:
        return "outcome: not known yet, it waits or runs"
    return f"outcome: {end}" + (f" ({error})" if error else "")


def _sum(timing: generation_pb2.Timing) -> str:
    return (
        f"ttft {timing.ttft_ms:.1f} ms = queue {timing.queue_ms:.1f} + prefill "
        f"{timing.prefill_ms:.1f} + kv {timing.kv_ms:.1f} + decode {timing.decode_ms:.1f}"
    )
