"""A routing decision as the page shows it."""

from __future__ import annotations

from operator import attrgetter

from cluster.identity import WorkerKey
from router.page.snapshot import DecisionRow
from router.pricing.route import Candidate, Cost
from router.telemetry.decisions import Decision

_TERMS = Cost.__struct_fields__
_terms_of = attrgetter(*_TERMS)


def decision_row(decision: Decision) -> DecisionRow:
    """Errors by their codes alone: their words may repeat what a client wrote."""
    route, arrival = decision.route, decision.arrival
    chosen = route.chosen
    others = [each for each in route.candidates if each != chosen]
    second = min(others, key=lambda each: each.cost.total_ms, default=None)
    return DecisionRow(
        request_id=decision.request_id,
        tenant=arrival.tenant,
        priority=arrival.priority.value,
        reason=route.reason.value,
        prefill=_name(chosen.prefill),
        decode=_name(chosen.decode),
        prompt_tokens=decision.view.prompt_tokens,
        expected_cached=decision.expected_work[1],
        terms_ms=_terms(decision),
        total_ms=_rounded(chosen.cost.total_ms),
        next_ms=None if second is None else _rounded(second.cost.total_ms),
        next_pair="" if second is None else _pair(second),
        foretold_ms=_rounded(decision.foretold.ttft_ms),
        ttft_ms=None if decision.timing is None else _rounded(decision.timing.ttft_ms),
        cached_tokens=None if decision.usage is None else decision.usage.cached_tokens,
        end=arrival.end,
    )


def _terms(decision: Decision) -> dict[str, float]:
    """The line before it is no part of the price, and of the wait."""
    named = {"line": decision.arrival.line_ms}
    for term, took_ms in zip(_TERMS, _terms_of(decision.route.chosen.cost), strict=True):
        named[term.removesuffix("_ms")] = took_ms
    return {name: _rounded(took_ms) for name, took_ms in named.items() if took_ms >= 0.05}


def _rounded(took_ms: float) -> float:
    return round(took_ms, 1)


def _name(key: WorkerKey | None) -> str:
    return "" if key is None else key.worker_id


def _pair(candidate: Candidate) -> str:
    decode = candidate.decode.worker_id
    return decode if candidate.prefill is None else f"{candidate.prefill.worker_id} > {decode}"
