"""When a request was where, as an operator's program reads it."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.deadline import Clock
from cluster.prompt_stages import stages_to_wire
from cluster.wire import timing_to_wire, usage_to_wire
from protos import router_admin_pb2
from router.control.decision_message import arrival_to_wire
from router.telemetry.decisions import Decision, DecisionLog
from router.telemetry.request_arrival import RequestArrival
from router.telemetry.request_course import Leg, RequestCourse


def traces_of(
    log: DecisionLog, asked: router_admin_pb2.TraceRequest, clock: Clock
) -> Iterator[router_admin_pb2.RequestTrace]:
    """Of what is kept now, what is asked for; each is made when it is taken, 30 us of the loop.
    `clock`: the one that requests are stamped by."""
    if asked.request_id:
        found = log.came_as(asked.request_id)
    else:
        oldest_s = clock() - asked.since_s if asked.since_s else float("-inf")
        found = [each for each in log.over() if each.course.arrived_s >= oldest_s]
        found.sort(key=_slowness_ms, reverse=True)
        found = found[: asked.slowest or None]
    return (trace_to_wire(each, log.find(each.request_id), clock()) for each in found)


def trace_to_wire(
    arrival: RequestArrival, decision: Decision | None, now_s: float
) -> router_admin_pb2.RequestTrace:
    """`decision`: its last; None: it was not routed, or that is too long ago."""
    course = arrival.course
    trace = router_admin_pb2.RequestTrace(
        request_id=arrival.request_id,
        age_s=max(0.0, now_s - course.arrived_s),
        arrival=arrival_to_wire(arrival),
        read_ms=course.since_arrival_ms(course.read_s),
        admitted_ms=course.since_arrival_ms(course.admitted_s),
        first_token_ms=course.since_arrival_ms(course.first_token_s),
        ended_ms=course.since_arrival_ms(course.ended_s),
        legs=[_leg(leg, course) for leg in course.legs],
    )
    if decision is not None:
        trace.prompt_tokens = decision.view.prompt_tokens
        trace.reason = decision.route.reason.value
        trace.notes.extend(decision.notes)
        if decision.usage is not None:
            trace.usage.CopyFrom(usage_to_wire(decision.usage))
        if decision.timing is not None:
            trace.timing.CopyFrom(timing_to_wire(decision.timing))
    return trace


def _slowness_ms(arrival: RequestArrival) -> float:
    """Until its first token; of one that had none, until it was over."""
    course = arrival.course
    return course.since_arrival_ms(course.first_token_s or course.ended_s) or 0.0


def _leg(leg: Leg, course: RequestCourse) -> router_admin_pb2.TraceLeg:
    return router_admin_pb2.TraceLeg(
        decode_worker=leg.decode.worker_id,
        prefill_worker=leg.prefill.worker_id if leg.prefill else "",
        sent_ms=course.since_arrival_ms(leg.sent_s),
        computed_ms=course.since_arrival_ms(leg.computed_s),
        first_token_ms=course.since_arrival_ms(leg.first_token_s),
        ended_ms=course.since_arrival_ms(leg.ended_s),
        end=leg.end,
        stages=stages_to_wire(leg.stages) if leg.stages else None,
    )
