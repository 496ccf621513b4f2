"""A routing decision, for people and for programs."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict

from cli.table import Table
from protos import router_admin_pb2

_TERMS = ("queue", "prefill", "transfer", "handoff", "interference", "decode", "memory")


def fields_of(decision: router_admin_pb2.Decision) -> dict[str, object]:
    """As in the proto; 0 and "" are told, an outcome that is not known is not."""
    return MessageToDict(
        decision,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def table_of(decision: router_admin_pb2.Decision) -> str:
    """What was decided, and what came of it."""
    return "\n".join([prices_of(decision), _outcome(decision)])


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


def _outcome(decision: router_admin_pb2.Decision) -> str:
    if not decision.HasField("timing"):
        return "outcome: not known (running, failed or cancelled)"
    usage, timing = decision.usage, decision.timing
    return (
        f"outcome: ttft {timing.ttft_ms:.1f} ms = queue {timing.queue_ms:.1f} + prefill "
        f"{timing.prefill_ms:.1f} + kv {timing.kv_ms:.1f} + decode {timing.decode_ms:.1f}; "
        f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens were cached"
    )
