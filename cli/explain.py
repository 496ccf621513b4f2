"""`splitserve explain`: why a request went where it went, every term of every price."""

from __future__ import annotations

import asyncio
import sys

from google.protobuf.json_format import MessageToDict

from cli.exit_code import ExitCode
from cli.json_output import print_json
from cli.table import Table
from cli.terminal import complain, shown
from cluster.dial.dialer import Dialer
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.join_token import operators_token
from protos import router_admin_pb2

ROUTER_TIMEOUT_S = 5.0
_TERMS = ("queue", "prefill", "transfer", "handoff", "interference", "decode", "memory")


def explain_request(address: str, request_id: str, *, output: str) -> ExitCode:
    """UNREACHABLE without a router; FAILED when it has no decision under that id."""
    try:
        decisions = asyncio.run(_ask(GrpcDialer(operators_token()), address, request_id))
    except SplitserveError as failure:
        complain(
            f"the router does not answer at {address}: {failure.message}",
            remedy="name it with --grpc HOST:PORT",
        )
        return ExitCode.UNREACHABLE
    if output == "json":
        print_json([_fields(decision) for decision in decisions])
    else:
        text = "\n\n".join(table_of(decision) for decision in decisions)
        print(shown(text, sys.stdout), end="\n" * bool(decisions))
    if not decisions:
        complain(
            f"the router has no decision for request {request_id!r}: it was never routed, or is "
            "too long ago",
            remedy="use the X-Request-Id of its answer",
        )
        return ExitCode.FAILED
    return ExitCode.OK


async def _ask(dialer: Dialer, address: str, request_id: str) -> list[router_admin_pb2.Decision]:
    request = router_admin_pb2.ExplainRequest(request_id=request_id)
    link = dialer.operator(address)
    try:
        return list((await link.explain(request, timeout_s=ROUTER_TIMEOUT_S)).decisions)
    finally:
        await link.close()


def _fields(decision: router_admin_pb2.Decision) -> dict[str, object]:
    """As in the proto; 0 and "" are told, an outcome that is not known is not."""
    return MessageToDict(
        decision,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def table_of(decision: router_admin_pb2.Decision) -> str:
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
    return "\n".join([*lines, _outcome(decision)])


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
