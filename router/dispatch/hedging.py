"""When a request gets a second attempt, and where: at the best other pair that has room for it.

Off unless `after` is given: a first token that takes so many times what was predicted is late. Each
second attempt is a retry of the budget's, so that a fleet that is late with everything gets no more
than a fifth on top. The tenant pays for one, whichever it is.
"""

from __future__ import annotations

from functools import partial

from cluster.errors import SplitserveError
from cluster.identity import Role, WorkerKey
from router.dispatch.journey import Journey
from router.dispatch.outlook import Outlook
from router.dispatch.race import Race
from router.dispatch.running_request import RunFollower, RunningRequest
from router.dispatch.sending import Sending
from router.dispatch.stream import RoutedRequest
from router.dispatch.tied import Attempt, Tied
from router.fleet.member import FleetMember
from router.fleet.room_part import RoomPart
from router.telemetry.decisions import Decision

LEAST_LATE_S = 0.05
"""What is predicted in less may be late by a turn of somebody's loop, which is nothing to mend."""


class Hedging:
    """Of one router. All calls from the event loop."""

    def __init__(self, sending: Sending, after: float | None) -> None:
        """`after`: times the predicted time to the first token; None: nobody has two attempts."""
        self._with = sending
        self._after = after

    def sent(self, journey: Journey, decision: Decision) -> RunningRequest | Tied:
        """The request at its workers; the caller closes it. Raises WorkerLost when they went in
        that moment."""
        late_s = self._late_s(journey, decision)
        if late_s is None:
            return self._send_first(journey, decision, journey).run
        race = Race(journey, self._with.decisions, self._with.metrics)
        first = partial(self._send_first, journey, decision)
        more = partial(self._send_more, journey, decision)
        return Tied(race, first, more, late_s, journey.request.limits.clock)

    def _late_s(self, journey: Journey, decision: Decision) -> float | None:
        """None: it has one attempt. Of a client that has something already there is none beside,
        nor of a prompt that is pooled, nor of a beam search, of which nothing comes before its
        end."""
        request = journey.request
        if request.pool is not None or request.sampling.beams:
            return None
        if self._after is None or not journey.has_nothing:
            return None
        outlook = Outlook.of(decision, self._with.estimates)
        return None if outlook is None else max(LEAST_LATE_S, self._after * outlook.total_ms / 1000)

    def _send_first(self, journey: Journey, decision: Decision, ear: RunFollower) -> Attempt:
        attempt = self._send(journey.request, decision, ear)
        journey.run_by(attempt.run, attempt.request)
        journey.clock.course.goes(attempt.run.leg)
        return attempt

    def _send(self, request: RoutedRequest, decision: Decision, ear: RunFollower) -> Attempt:
        fleet, index, route = self._with.fleet, self._with.index, decision.route
        request = self._with.desk.fitted(request, route.decode)
        run = RunningRequest(request, decision.view, route, fleet, index, ear)
        self._with.metrics.routes.labels(route.reason.value).inc()
        return Attempt(run, request, decision)

    def _send_more(self, journey: Journey, first: Decision, ear: RunFollower) -> Attempt | None:
        """To another pair; None: there is none that has room, or no retry is left."""
        if not journey.attempts.may_hedge:
            return None
        request = journey.another_attempt()
        without = self._without_spare(request, journey.part)
        excluded = journey.attempts.excluded | without | {first.computing}
        try:
            decision = self._with.desk.decide(request, excluded)
            item = self._with.fleet.find(decision.route.decode)
            if item is None:
                return None
            attempt = self._send(request, decision, ear)
        except SplitserveError:  # nobody else takes it, or is there no more
            return None
        attempt.part = journey.part.beside(item.room, decision.cached_at(decision.route.decode))
        if journey.part.takes_turns and (other := self._with.fleet.find(decision.computing)):
            prefill_ms = decision.route.chosen.cost.prefill_ms
            attempt.turn = other.prompts.give(prefill_ms, request.tenant)
        self._note_sent(journey, attempt)
        return attempt

    def _without_spare(self, request: RoutedRequest, part: RoomPart) -> frozenset[WorkerKey]:
        """Decode workers that are no place for it: the price is the best of the others."""
        members = self._with.fleet.open(Role.DECODE)
        return frozenset(item.key for item in members if not _has_spare(item, request, part))

    def _note_sent(self, journey: Journey, attempt: Attempt) -> None:
        self._with.metrics.hedges.inc()
        journey.clock.course.goes(attempt.run.leg)
        journey.attempts.hedged(attempt.worker)
        waited_ms = journey.clock.since_dispatch_ms
        note = f"sent to {attempt.worker.worker_id} as well: no token in {waited_ms:.0f} ms"
        journey.note(note)


def _has_spare(item: FleetMember, request: RoutedRequest, part: RoomPart) -> bool:
    """True where a second attempt keeps nobody else waiting, as the worker says and as was promised
    of it. One that is cold, or not trusted, helps nobody who is late already."""
    load, limit = item.load, item.member.max_num_seqs
    num_seqs = max(load.num_running + load.num_waiting, item.num_in_flight) + request.num_sequences
    per_choice = request.expected_tokens or request.sampling.max_tokens
    tokens = request.num_known_tokens + request.num_sequences * per_choice
    has_seats = not limit or num_seqs <= limit
    has_blocks = item.free_tokens is None or tokens <= item.free_tokens
    is_well = item.cooldown.is_trusted and item.has_room
    return has_seats and has_blocks and is_well and item.room.has(part.need)
