"""One request at a vLLM server, as far as the gateway that sent it tells.

    sent -> head -> tokens ... -> ended          doubted: no word when the first was foretold,
      |        '- an error, silence -> failed            and the server has made nothing for anybody
      '- its client left -> closed                       since: it rests, and the answer may come

An answer that comes in one piece has no first token that anybody could see: of its server's
progress only the server's own page tells, and nothing is learnt of its times.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cluster.errors import DeadlineExceeded, status_of
from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.chosen_workers import ChosenWorkers
from router.dispatch.request_clock import RequestClock
from router.dispatch.sending import Sending
from router.dispatch.server_patience import ServerPatience
from router.dispatch.shown import Shown
from router.dispatch.stay import Stay
from router.dispatch.stream import RoutedRequest
from router.dispatch.time_limits import ProgressWatch
from router.fleet.stage import RequestStage
from router.telemetry.decisions import Decision
from router.telemetry.request_course import RequestCourse
from router.vllm.server import VllmServer

SERVER_ERROR, SERVER_REFUSAL = "server_error", "server_refused"
"""How a request ended that its server answered with an error of its own, or of the request's."""
_LATE = status_of(DeadlineExceeded("")).code


class PassedRequest:
    """`close` once, whatever came. All calls from the event loop."""

    def __init__(
        self,
        request: RoutedRequest,
        decision: Decision,
        server: VllmServer,
        place: AdmissionLease,
        sending: Sending,
        *,
        shown: Shown,
    ) -> None:
        """Raises WorkerLost when the server has gone in that moment."""
        workers = ChosenWorkers.of(decision.view, decision.route, sending.fleet)
        self.server, self.request = server, request
        self.decision = decision
        self._place, self._with = place, sending
        self._key, self._standstill = decision.route.decode, workers.standstill
        self._shown = shown
        course = _course_of(request, sending)
        self.clock = RequestClock(
            request.limits.arrived_s,
            clock=request.limits.clock,
            on_gap=lambda gap_s: None,  # of choices together, in pieces: no gap of one
            course=course,
        )
        self._num_made = 0
        self._is_alone = server.num_asked == 0
        self._is_judged = self._has_begun = self._has_worked = False
        self._take_place(workers)
        self._stay = Stay(request, workers, decision.route, sending.fleet, sending.index)
        course.goes(self._stay.leg)
        self._stay.begin(request, workers)
        self._patience = self._new_patience()
        server.num_asked += 1

    @property
    def root(self) -> bytes:
        """Below which its blocks are named: the tenant's and the client's salt, at that server."""
        item = self._with.fleet.find(self._key)
        pairing_key = "" if item is None else item.pairing_key
        return self.request.root_at(self.request.namer_at(self._key, pairing_key))

    @property
    def expected_cached(self) -> int:
        """Tokens of its prompt that the server is believed to have."""
        return self.decision.cached_at(self._key)

    @property
    def trace_headers(self) -> dict[str, str | None]:
        """By which the server has its spans in the request's trace, in place of what the client
        said; empty: it is not traced."""
        trace, span_id = self.request.trace, self._stay.leg.span_id
        if trace is None or span_id is None:
            return {}
        return {"tracestate": None, **trace.headers_of(span_id)}

    @property
    def stage(self) -> RequestStage:
        """See UnderWay."""
        return RequestStage.DECODE if self.clock.has_token else RequestStage.PREFILL

    @property
    def worker(self) -> WorkerKey:
        """See UnderWay."""
        return self._key

    @property
    def num_answer_tokens(self) -> int:
        """See UnderWay."""
        return self._num_made

    @property
    def notes(self) -> tuple[str, ...]:
        """See UnderWay."""
        return self.decision.notes

    def watched(self, on_late: Callable[[DeadlineExceeded], None]) -> ProgressWatch:
        """Ends the wait for it, when the router's limits or the client's have passed."""
        return ProgressWatch(
            self.request.limits, lambda: self._last_sign_s, on_late, stands=lambda: self._stands
        )

    def began(self) -> None:
        """The head of a good answer has come. Of a stream it is sent before anything is made; an
        answer in one piece is complete with it."""
        self._has_begun = True
        if self._shown is Shown.WHOLE:
            self._note_work()

    def made(self, num_tokens: int) -> None:
        """A part of the answer has come, with so many tokens more, over all choices."""
        self.server.num_words += 1
        if num_tokens:
            self._note_work()
            self._count(num_tokens)

    def ended(self, usage: Usage) -> None:
        """The answer is complete, as far as anybody knows."""
        self._note_good_end()
        timing = self._timing(usage)
        self._note_rest(max(0, usage.completion_tokens - self._num_made))
        request, sending = self.request, self._with
        name = self.server.name
        self._stay.ended(usage, timing or Timing(decode_worker=name), self._key)
        self._stay.over()
        sending.metrics.finished(usage, timing)
        sending.metrics.classes.finished(request.priority, usage, timing)
        sending.decisions.finished(request.request_id, usage, timing)
        if request.trace is not None:
            request.trace.answered(self.decision, usage, timing)
        if timing is None:
            sending.estimates.answered(usage, num_choices=request.num_choices)
            return
        sending.estimates.finished(
            usage, timing, decode=self._key, prefill=None, num_choices=request.num_choices
        )

    def failed(self, why: str, *, is_servers_fault: bool) -> None:
        """It answered with an error, which leaves nothing to count on."""
        self._has_failed(SERVER_ERROR if is_servers_fault else SERVER_REFUSAL, why)
        if is_servers_fault:
            self._blame()

    def fell_silent(self, why: DeadlineExceeded, *, num_tokens: int) -> None:
        """Its answer did not come, or not to its end, in time: nothing is learnt from it. The
        server's fault where it has made nothing for anybody. `num_tokens`: that its tenant's share
        bears, seen or not."""
        self._place.bill.produced(max(0, num_tokens - self._num_made))
        self._has_failed(_LATE, why.message)
        if self._standstill.has_lasted(self.request.limits.between_tokens_s):
            self._blame()

    def _has_failed(self, code: str, why: str) -> None:
        self._stay.failed()
        self._stay.over(code)
        self._with.metrics.requests.labels(code).inc()
        self._with.decisions.ended(self.request.request_id, code, f"{self.server.name}: {why}")

    def close(self) -> None:
        """It has nothing more to do for it. However it leaves, where the server stands that is the
        server's fault."""
        if self._patience is not None and self._patience.is_at_its_end:
            self._blame()
        self._stop_doubting()
        self.server.num_asked -= 1
        if self._has_worked:  # whatever its end: its prompt is computed
            self._stay.computed(self._key, self.expected_cached)
        self._stay.close()

    @property
    def _stands(self) -> bool:
        return self._standstill.has_lasted(self.request.limits.between_tokens_s)

    @property
    def _last_sign_s(self) -> float | None:
        """Where tokens are not seen: when its server last made something, for whomever."""
        if self._shown is Shown.TOKENS:
            return self.clock.last_token_s
        made_s = self._standstill.made_s
        return made_s if made_s is not None and made_s > self._stay.leg.sent_s else None

    def _new_patience(self) -> ServerPatience | None:
        """None where nobody could see that the server does something."""
        if self._shown is not Shown.TOKENS and self.server.numbers.num_tokens is None:
            return None
        foretold_s, limits = self.decision.foretold.ttft_ms / 1000, self.request.limits
        return ServerPatience(foretold_s, self._standstill, limits, self._doubt)

    def _take_place(self, workers: ChosenWorkers) -> None:
        place, decision = self._place, self.decision
        place.part.makes(lambda: self._num_made)
        place.part.move(workers.decode.room, self.expected_cached)
        prefill_ms, turn = decision.route.chosen.cost.prefill_ms, None
        if place.part.takes_turns:
            turn = workers.computing.prompts.give(prefill_ms, self.request.tenant)
        place.goes_to(turn)
        computed, cached = decision.expected_work
        place.bill.prompt(computed=computed, cached=cached)
        self.clock.dispatched()
        self._with.decisions.record(decision)

    def _count(self, num_tokens: int) -> None:
        now_s = self.request.limits.clock()
        if not self.clock.has_token:
            self._stay.leg.computed_s = self._stay.leg.first_token_s = now_s
            self._note_computed()
        self.clock.tokens(0, num_tokens)
        self._note_made(num_tokens)

    def _note_rest(self, num_tokens: int) -> None:
        """Told of by its usage alone."""
        if num_tokens and not self._num_made:
            self._note_computed()
        self._note_made(num_tokens)

    def _note_computed(self) -> None:
        self._stay.num_begun_choices = self.request.num_choices
        self._stay.prefilled()
        self._stay.decoded()
        self._place.computed()

    def _note_made(self, num_tokens: int) -> None:
        self._num_made += num_tokens
        self._stay.left_behind.made(num_tokens)
        self._place.bill.produced(num_tokens)

    def _timing(self, usage: Usage) -> Timing | None:
        """None: no token was seen when it came. What a server took beside others is no measure of
        its computing."""
        if not self.clock.has_token:
            return None
        per_choice = usage.completion_tokens // self.request.num_choices
        name = self.server.name
        timing = self.clock.complete(Timing(decode_worker=name), longest_tokens=per_choice)
        if not self._is_alone:
            return timing
        return replace(timing, prefill_ms=timing.decode_ms, decode_ms=0.0)

    def _note_work(self) -> None:
        """It has made something."""
        self._has_worked = True
        self._stop_doubting()
        self._standstill.made(self.request.limits.clock())
        self._with.fleet.note_request(self._key, failed=False)

    def _note_good_end(self) -> None:
        """All that tells of an answer of which no part was seen; without its head, nothing does."""
        if self._has_begun:
            self._standstill.ended_well()
            if not self._has_worked:
                self._with.fleet.note_good_end(self._key)

    def _stop_doubting(self) -> None:
        if self._patience is not None:
            self._patience.stop()

    def _doubt(self, waited_s: float) -> None:
        """It should have said something long ago, and has made nothing for anybody."""
        self.decision.notes += (
            f"{self.server.name} has made nothing for {waited_s:.0f} s: others are preferred",
        )
        self._blame()

    def _blame(self) -> None:
        """Once."""
        if not self._is_judged:
            self._is_judged = True
            self._with.fleet.note_request(self._key, failed=True)


def _course_of(request: RoutedRequest, sending: Sending) -> RequestCourse:
    arrival = request.arrival_in(sending.decisions)
    return RequestCourse(request.limits.arrived_s) if arrival is None else arrival.course
