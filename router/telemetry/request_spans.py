"""The router's spans of a request, laid between the stamps of its course.

    chat smollm2 ------------------------------------------------------- the whole, with its usage
      read ---- admission ---- dispatch - attempt --------------------
                                                 '- its workers' spans: another attempt, another

Attributes are named by OpenTelemetry's conventions for generative AI; our own begin with
`splitserve.`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.generation import FinishReason, Timing, Usage
from cluster.sampling import SamplingParams
from cluster.tracing.part import SpanFacts, TracePart
from cluster.tracing.span import Attribute, SpanKind
from router.telemetry.decisions import Decision
from router.telemetry.request_arrival import RequestArrival
from router.telemetry.request_course import Leg

Attributes = dict[str, Attribute]


class TracedAnswer(msgspec.Struct, eq=False):
    """A request that is over, or will be."""

    operation: str
    model: str
    arrival: RequestArrival
    sampling: SamplingParams
    num_prompt: int
    """Tokens."""
    decision: Decision | None = None
    """The last; None: it went nowhere."""
    usage: Usage | None = None
    """None where it did not end well."""
    timing: Timing | None = None
    """As `usage`; and None where nobody saw its tokens come."""
    reasons: Sequence[FinishReason] = ()
    """Why each choice ended."""


def add_answer_spans(part: TracePart, answer: TracedAnswer, now_s: float) -> None:
    """All of them. What has no end ends now."""
    arrival = answer.arrival
    course = arrival.course
    ended_s = course.ended_s or now_s
    error = (arrival.error or arrival.end) if arrival.end else None
    part.whole(
        f"{answer.operation} {answer.model}",
        course.arrived_s,
        ended_s,
        SpanFacts(kind=SpanKind.SERVER, attributes=_of_request(answer), error=error),
    )
    if course.read_s is None:
        return
    part.add("read", course.arrived_s, course.read_s)
    admitted_s = course.admitted_s
    waited = SpanFacts(attributes=_of_line(arrival), error=error if admitted_s is None else None)
    part.add("admission", course.read_s, admitted_s or ended_s, waited)
    if admitted_s is not None:
        sent_s = [leg.sent_s for leg in course.legs if leg.sent_s >= admitted_s]
        part.add("dispatch", admitted_s, min(sent_s, default=ended_s))
    for number, leg in enumerate(course.legs, 1):
        facts = SpanFacts(
            kind=SpanKind.CLIENT, attributes=_of_leg(leg, number), error=leg.end or None
        )
        part.add("attempt", leg.sent_s, leg.ended_s or ended_s, facts, span_id=leg.span_id)


def _of_request(answer: TracedAnswer) -> Attributes:
    arrival, sampling = answer.arrival, answer.sampling
    found: Attributes = {
        "gen_ai.operation.name": answer.operation,
        "gen_ai.provider.name": "splitserve",
        "gen_ai.request.model": answer.model,
        "gen_ai.response.model": answer.model,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.choice.count": sampling.n,
        "gen_ai.usage.input_tokens": answer.num_prompt,
        "splitserve.request.id": arrival.request_id,
        "splitserve.tenant": arrival.tenant,
        "splitserve.class": arrival.priority.value,
    }
    if arrival.end:
        found["error.type"] = arrival.end
    return found | _of_route(answer) | _of_answer(answer)


def _of_route(answer: TracedAnswer) -> Attributes:
    """The chosen pair; what computed the prompt in the end is in the answer."""
    decision = answer.decision
    if decision is None:
        return {}
    route = decision.route
    found: Attributes = {
        "splitserve.decode_worker": route.decode.worker_id,
        "splitserve.route.reason": route.reason.value,
        "splitserve.expected_cached_tokens": decision.expected_tokens,
    }
    if route.prefill:
        found["splitserve.prefill_worker"] = route.prefill[0].worker_id
    if decision.notes:
        found["splitserve.notes"] = tuple(decision.notes)
    return found


def _of_answer(answer: TracedAnswer) -> Attributes:
    usage = answer.usage
    if usage is None:
        return {}
    found: Attributes = {
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "splitserve.cached_tokens": usage.cached_tokens,
    }
    if answer.reasons:
        reasons = tuple(reason.value for reason in answer.reasons)
        found["gen_ai.response.finish_reasons"] = reasons
    return found | _of_times(answer.timing)


def _of_times(timing: Timing | None) -> Attributes:
    if timing is None:
        return {}
    found: Attributes = {
        "splitserve.ttft_ms": timing.ttft_ms,
        "splitserve.itl_ms": timing.itl_ms,
        "splitserve.kv_bytes": timing.kv_bytes,
    }
    if timing.prefill_worker:
        found["splitserve.prefill_worker"] = timing.prefill_worker
    return found


def _of_line(arrival: RequestArrival) -> Attributes:
    """What it met there."""
    found: Attributes = {"splitserve.queue.waiting": arrival.num_waiting}
    if arrival.num_before is not None:
        found["splitserve.queue.before"] = arrival.num_before
        found["splitserve.queue.lacked"] = arrival.lacked
    return found


def _of_leg(leg: Leg, number: int) -> Attributes:
    found: Attributes = {
        "splitserve.attempt": number,
        "splitserve.decode_worker": leg.decode.worker_id,
    }
    if leg.prefill is not None:
        found["splitserve.prefill_worker"] = leg.prefill.worker_id
    if leg.end:
        found["error.type"] = leg.end
    return found
