"""Why a request went where it went: the last decisions, with every term and what came of them."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

import msgspec

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.pricing.route import Route, RoutingView
from router.telemetry.request_arrival import RequestArrival
from router.telemetry.request_ids import is_known_as

MAX_DECISIONS = 1000
MAX_CANDIDATES = 16
"""Of a decision, the cheapest: what is kept of a large fleet must not burden the collector."""
MAX_ANSWERS = 16
"""Decisions under one client's id that are shown."""


class Decision(msgspec.Struct):
    """One routing decision; the outcome is known once the request has ended well."""

    request_id: str
    view: RoutingView
    route: Route
    notes: tuple[str, ...] = ()
    """What kept workers from being considered, such as a pairing that does not match."""
    usage: Usage | None = None
    timing: Timing | None = None
    arrival: RequestArrival = msgspec.field(default_factory=RequestArrival)
    """Without an id: of a prompt that is only priced."""

    @property
    def foretold(self) -> Timing:
        """What its timing was expected to be, with the line before it."""
        cost = self.route.chosen.cost
        queue_ms = self.arrival.line_ms + cost.queue_ms + cost.memory_ms
        kv_ms = cost.transfer_ms + cost.handoff_ms
        return Timing(
            ttft_ms=queue_ms + cost.prefill_ms + kv_ms + cost.decode_ms,
            queue_ms=queue_ms,
            prefill_ms=cost.prefill_ms,
            kv_ms=kv_ms,
            decode_ms=cost.decode_ms,
        )

    @property
    def expected_tokens(self) -> int:
        """Prompt tokens that the index expected to be cached at the worker that prefills."""
        workers = (*self.view.decode, *self.view.prefill)
        return next(item.matched_tokens for item in workers if item.key == self.computing)

    @property
    def expected_work(self) -> tuple[int, int]:
        """Tokens that the worker that prefills has to compute, and those that it has."""
        cached = min(self.expected_tokens, self.view.prompt_tokens - 1)
        return self.view.prompt_tokens - cached, cached

    def work_in(self, elapsed_ms: float) -> tuple[int, int]:
        """The same of a prompt that was given up so long after it was sent: at most."""
        computed, cached = self.expected_work
        workers = (*self.view.decode, *self.view.prefill)
        speed = next(item.speed for item in workers if item.key == self.computing)
        return min(computed, int(elapsed_ms / max(speed.ms_per_token, 1e-6))), cached

    def cached_at(self, key: WorkerKey) -> int:
        """Of the prompt, that a decode worker has as far as is believed."""
        return next((item.trusted_tokens for item in self.view.decode if item.key == key), 0)

    @property
    def computing(self) -> WorkerKey:
        """The worker that is to compute the prompt."""
        return self.route.prefill[0] if self.route.prefill else self.route.decode


class DecisionLog:
    """The last requests and decisions by request id; one that is tried again keeps its last."""

    def __init__(self, max_decisions: int = MAX_DECISIONS) -> None:
        self._decisions: OrderedDict[str, Decision] = OrderedDict()
        self._arrivals: OrderedDict[str, RequestArrival] = OrderedDict()
        self._noted: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        """By request id: what was noted about others of its inputs."""
        self._max_decisions = max_decisions

    def came(self, arrival: RequestArrival) -> None:
        """A request is at the door."""
        self._arrivals[arrival.request_id] = arrival
        if len(self._arrivals) > self._max_decisions:
            self._arrivals.popitem(last=False)

    def arrival_of(self, request_id: str) -> RequestArrival | None:
        """None: too many have come since."""
        return self._arrivals.get(request_id)

    def ended(self, request_id: str, end: str, error: str) -> None:
        """The request ended, not well: `end` is an error's code, or "cancelled". Of several inputs
        the first word counts."""
        arrival = self._arrivals.get(request_id)
        if arrival is not None and not arrival.end:
            arrival.ended(end, error)

    def record(self, decision: Decision) -> None:
        """A request was routed; what was noted about it before stands before the decision's own
        notes."""
        decision.arrival = self._arrivals.get(decision.request_id, decision.arrival)
        if noted := self._noted.get(decision.request_id):
            earlier = (words for words in noted if words not in decision.notes)
            decision.notes = (*earlier, *decision.notes)
        self._decisions.pop(decision.request_id, None)
        self._decisions[decision.request_id] = _shortened(decision)
        if len(self._decisions) > self._max_decisions:
            self._decisions.popitem(last=False)

    def note(self, request_id: str, words: str) -> None:
        """About a request, also before it is routed, and for when it is routed anew. The same
        words stand once, where they were said last."""
        self._noted[request_id] = _last(words, self._noted.pop(request_id, ()))
        if len(self._noted) > self._max_decisions:
            self._noted.popitem(last=False)
        if (decision := self._decisions.get(request_id)) is not None:
            decision.notes = _last(words, decision.notes)

    def finished(self, request_id: str, usage: Usage, timing: Timing | None) -> None:
        """The request ended well; None: nobody saw when its tokens came."""
        decision = self._decisions.get(request_id)
        if decision is not None:
            decision.usage, decision.timing = usage, timing

    def find(self, request_id: str) -> Decision | None:
        """None for a request that is unknown, was never routed, or is too long ago."""
        return self._decisions.get(request_id)

    def came_as(self, echoed_id: str) -> list[RequestArrival]:
        """As `known_as`, routed or not."""
        newest = reversed(self._arrivals.values())
        return list(
            islice((a for a in newest if is_known_as(a.request_id, echoed_id)), MAX_ANSWERS)
        )

    def over(self) -> list[RequestArrival]:
        """All that have ended, oldest first."""
        return [each for each in self._arrivals.values() if each.course.ended_s is not None]

    def newest(self, most: int) -> list[Decision]:
        """So many, the last first."""
        return list(islice(reversed(self._decisions.values()), most))

    def known_as(self, echoed_id: str) -> list[Decision]:
        """Those that may have answered with this X-Request-Id, newest first, a few at most."""
        newest = reversed(self._decisions.values())
        return list(
            islice((d for d in newest if is_known_as(d.request_id, echoed_id)), MAX_ANSWERS)
        )

    def unrouted(self, echoed_id: str) -> list[RequestArrival]:
        """As `known_as`, those that went to no worker: they wait, left, or were refused."""
        newest = (
            a for a in reversed(self._arrivals.values()) if a.request_id not in self._decisions
        )
        return list(
            islice((a for a in newest if is_known_as(a.request_id, echoed_id)), MAX_ANSWERS)
        )


def _last(words: str, notes: tuple[str, ...]) -> tuple[str, ...]:
    return (*(each for each in notes if each != words), words)


def _shortened(decision: Decision) -> Decision:
    """The chosen candidate and the cheapest others, with their workers."""
    route, view = decision.route, decision.view
    if len(route.candidates) <= MAX_CANDIDATES:
        return decision
    others = [item for item in route.candidates if item != route.chosen]
    cheapest = sorted(others, key=lambda item: item.cost.total_ms)[: MAX_CANDIDATES - 1]
    kept = (route.chosen, *cheapest)
    workers = {key for item in kept for key in (item.decode, item.prefill)}
    return msgspec.structs.replace(
        decision,
        route=msgspec.structs.replace(route, candidates=kept),
        view=msgspec.structs.replace(
            view,
            decode=tuple(item for item in view.decode if item.key in workers),
            prefill=tuple(item for item in view.prefill if item.key in workers),
        ),
    )
