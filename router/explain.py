"""Why a request went where it went: the last decisions, with every term and what came of them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields, replace

from cluster.generation import Timing, Usage
from router.route import Candidate, Cost, Route, RoutingView

MAX_DECISIONS = 1000
MAX_CANDIDATES = 16
"""Of a decision, the cheapest: what is kept of a large fleet must not burden the collector."""
_TERMS = tuple(item.name for item in fields(Cost))


@dataclass(slots=True)
class Decision:
    """One routing decision; the outcome is known once the request has ended well."""

    request_id: str
    view: RoutingView
    route: Route
    notes: tuple[str, ...] = ()
    """What kept workers from being considered, such as a pairing that does not match."""
    usage: Usage | None = None
    timing: Timing | None = None

    @property
    def expected_tokens(self) -> int:
        """Prompt tokens that the index expected to be cached at the worker that prefills."""
        key = self.route.prefill[0] if self.route.prefill else self.route.decode
        workers = (*self.view.decode, *self.view.prefill)
        return next(item.matched_tokens for item in workers if item.key == key)


class DecisionLog:
    """The last decisions by request id; a retried request keeps its last one."""

    def __init__(self, max_decisions: int = MAX_DECISIONS) -> None:
        self._decisions: OrderedDict[str, Decision] = OrderedDict()
        self._max_decisions = max_decisions

    def record(self, decision: Decision) -> None:
        """A request was routed."""
        self._decisions.pop(decision.request_id, None)
        self._decisions[decision.request_id] = _shortened(decision)
        if len(self._decisions) > self._max_decisions:
            self._decisions.popitem(last=False)

    def finished(self, request_id: str, usage: Usage, timing: Timing) -> None:
        """The request ended well."""
        decision = self._decisions.get(request_id)
        if decision is not None:
            decision.usage, decision.timing = usage, timing

    def find(self, request_id: str) -> Decision | None:
        """None for a request that is unknown, was never routed, or is too long ago."""
        return self._decisions.get(request_id)


def _shortened(decision: Decision) -> Decision:
    """The chosen candidate and the cheapest others, with their workers."""
    route, view = decision.route, decision.view
    if len(route.candidates) <= MAX_CANDIDATES:
        return decision
    others = [item for item in route.candidates if item != route.chosen]
    cheapest = sorted(others, key=lambda item: item.cost.total_ms)[: MAX_CANDIDATES - 1]
    kept = (route.chosen, *cheapest)
    workers = {key for item in kept for key in (item.decode, item.prefill)}
    return replace(
        decision,
        route=replace(route, candidates=kept),
        view=replace(
            view,
            decode=tuple(item for item in view.decode if item.key in workers),
            prefill=tuple(item for item in view.prefill if item.key in workers),
        ),
    )


def render(decision: Decision) -> str:
    """A table for people: one line per candidate, the chosen one marked."""
    view, route = decision.view, decision.route
    lines = [
        f"{decision.request_id}: {view.prompt_tokens} prompt tokens, {route.reason}",
        f"  {'candidate':<34}{'total':>9}" + "".join(f"{_short(t):>13}" for t in _TERMS),
    ]
    lines += [_line(item, chosen=item == route.chosen) for item in route.candidates]
    lines += [
        f"  {worker.key.worker_id}: {worker.matched_tokens} tokens cached, "
        f"{worker.waiting_tokens} waiting, {worker.num_running} running"
        for worker in (*view.decode, *view.prefill)
    ]
    lines += [f"  note: {note}" for note in decision.notes]
    return "\n".join(lines + _outcome(decision))


def _short(term: str) -> str:
    return term.removesuffix("_ms")


def _line(candidate: Candidate, *, chosen: bool) -> str:
    prefill = candidate.prefill.worker_id if candidate.prefill else "(alone)"
    name = f"{'*' if chosen else ' '} {prefill} -> {candidate.decode.worker_id}"
    terms = "".join(f"{getattr(candidate.cost, term):>13.2f}" for term in _TERMS)
    return f"  {name:<34}{candidate.cost.total_ms:>9.2f}{terms}"


def _outcome(decision: Decision) -> list[str]:
    usage, timing = decision.usage, decision.timing
    if usage is None or timing is None:
        return ["  outcome: not known (running, failed or cancelled)"]
    return [
        f"  outcome: ttft {timing.ttft_ms:.1f} ms = queue {timing.queue_ms:.1f} + prefill "
        f"{timing.prefill_ms:.1f} + kv {timing.kv_ms:.1f} + decode {timing.decode_ms:.1f}; "
        f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens were cached"
    ]
