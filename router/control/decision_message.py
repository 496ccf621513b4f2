"""A routing decision as an operator's program reads it."""

from __future__ import annotations

from cluster.wire import timing_to_wire, usage_to_wire
from protos import router_admin_pb2
from router.pricing.route import Candidate, Cost, WorkerView
from router.telemetry.decisions import Decision
from router.telemetry.request_arrival import RequestArrival

_TERMS = Cost.__struct_fields__
"""The wire has a field of the same name for each."""
NOT_ROUTED = "not_routed"


def decision_to_wire(decision: Decision) -> router_admin_pb2.Decision:
    """All candidates with every term, and the outcome once it is known."""
    view, route = decision.view, decision.route
    return router_admin_pb2.Decision(
        request_id=decision.request_id,
        prompt_tokens=view.prompt_tokens,
        reason=route.reason.value,
        candidates=[_candidate(item, chosen=item == route.chosen) for item in route.candidates],
        workers=map(_worker, (*view.decode, *view.prefill)),
        notes=decision.notes,
        usage=usage_to_wire(decision.usage) if decision.usage else None,
        timing=timing_to_wire(decision.timing) if decision.timing else None,
        arrival=arrival_to_wire(decision.arrival) if decision.arrival.request_id else None,
        foretold=timing_to_wire(decision.foretold),
    )


def unrouted_to_wire(arrival: RequestArrival) -> router_admin_pb2.Decision:
    """Of a request that went to no worker."""
    return router_admin_pb2.Decision(
        request_id=arrival.request_id, reason=NOT_ROUTED, arrival=arrival_to_wire(arrival)
    )


def arrival_to_wire(arrival: RequestArrival) -> router_admin_pb2.Arrival:
    """What it met at the door."""
    return router_admin_pb2.Arrival(
        tenant=arrival.tenant,
        priority=arrival.priority.value,
        waited=arrival.num_before is not None,
        num_before=arrival.num_before or 0.0,
        num_waiting=arrival.num_waiting,
        line_ms=arrival.line_ms,
        lacked=arrival.lacked,
        end=arrival.end,
        error=arrival.error,
    )


def _candidate(candidate: Candidate, *, chosen: bool) -> router_admin_pb2.Candidate:
    return router_admin_pb2.Candidate(
        decode_worker=candidate.decode.worker_id,
        prefill_worker=candidate.prefill.worker_id if candidate.prefill else "",
        chosen=chosen,
        total_ms=candidate.cost.total_ms,
        **{term: getattr(candidate.cost, term) for term in _TERMS},
    )


def _worker(worker: WorkerView) -> router_admin_pb2.WorkerAtDecision:
    return router_admin_pb2.WorkerAtDecision(
        worker_id=worker.key.worker_id,
        matched_tokens=worker.matched_tokens,
        waiting_tokens=worker.waiting_tokens,
        num_running=worker.num_running,
    )
