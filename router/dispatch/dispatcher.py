"""The conductor: admit, decide, send, relay, account.

    admit -> wait for a decode worker -> decide -> send -> relay tokens -> Completed
                                           ^         |        |               ^
                                           |         |        '- all stopped -'
                                           '---------' its worker fails, dies, stands or stops, and
                                                       another may not: on from what was relayed

A request ends once: with Completed, with one error, or because the caller closed the iterator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing

from cluster.errors import (
    ContextTooLong,
    NoWorker,
    SplitserveError,
)
from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from cluster.process.loop_share import LoopShare
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.attempts import AttemptRules, Attempts
from router.dispatch.both_lines import BothLines
from router.dispatch.chronicle import Chronicle
from router.dispatch.degradation import Degradation
from router.dispatch.evacuation import Evacuation
from router.dispatch.foresight import asked_by
from router.dispatch.handing_on import HandingOn
from router.dispatch.hedging import Hedging
from router.dispatch.in_flight import Admitted, InFlight
from router.dispatch.journey import Journey
from router.dispatch.last_word import summed_up, summed_up_alone
from router.dispatch.leaving import Others
from router.dispatch.newest_version import in_newest_version
from router.dispatch.outlook import Outlook
from router.dispatch.preemption import GaveWay
from router.dispatch.reception import Reception
from router.dispatch.request_clock import RequestClock
from router.dispatch.routing import computed_by
from router.dispatch.running_choices import RunningChoices
from router.dispatch.running_request import prefill_worker_of
from router.dispatch.sending import Sending
from router.dispatch.stream import (
    ChoiceTokens,
    Completed,
    Newcomer,
    PromptTokens,
    RoutedRequest,
    StreamEvent,
)
from router.dispatch.worker_needs import WorkerNeeds
from router.fairness.shares import Bill
from router.fleet.token_taker import TokenTaker
from router.telemetry.decisions import Decision
from router.text.choice_count import ChoiceCount, new_counts


class Dispatcher:
    """The TokenSource of a router. All calls from the event loop."""

    def __init__(
        self,
        lines: BothLines,
        sending: Sending,
        *,
        rules: AttemptRules,
        degradation: Degradation,
        share: LoopShare,
    ) -> None:
        self._lines = lines
        self._fleet = fleet = sending.fleet
        self._adapters = sending.adapters
        self._estimates = sending.estimates
        self._metrics = metrics = sending.metrics
        self._decisions = sending.decisions
        self._desk = sending.desk
        self._rules = rules
        self._degradation = degradation
        self._chronicle = Chronicle(metrics, fleet.diary)
        self._reception = Reception(lines, degradation, sending)
        self.in_flight = InFlight()
        self._hedging = Hedging(sending, rules.hedge_after)
        self._share = share
        self._evacuation = Evacuation(fleet, is_on=rules.continues)
        metrics.watch_queue(lambda: lines.num_queued, lambda: lines.num_running)
        queued = lines.queued_by_tenant
        metrics.classes.watch(lambda p: sum(queued(p).values()), lambda: degradation.num_in_force)
        metrics.watch_index(lambda: sending.index.num_blocks)
        metrics.watch_retries(lambda: rules.budget.used_share)

    def check_room(self, newcomer: Newcomer) -> None:
        """See `TokenSource.check_room`."""
        self._reception.check_room(newcomer)

    async def generate(
        self,
        request: RoutedRequest,
        counts: Sequence[ChoiceCount] | None = None,
        taker: TokenTaker | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """See `TokenSource.generate`."""
        with (
            self._reception.counted(request),
            self.in_flight.taken(request) as taken,
            await self._admitted(request := self._degradation.shortened(request)) as place,
            closing(self._journey(request, counts, place)) as journey,
        ):
            taken.under_way = journey
            decision = await self._decide(journey)
            while True:
                try:
                    with closing(self._hedging.sent(journey, decision)) as run:
                        if taker is not None:
                            run.hand_to(HandingOn(journey, taker))
                        while isinstance(event := await run.next(), (ChoiceTokens, PromptTokens)):
                            if journey.take(event):
                                yield event
                        completed = self._complete(journey.decision, journey, event)
                        break
                except SplitserveError as error:
                    if journey.choices.are_over:
                        completed = self._complete_unheard(journey.decision, journey, error)
                        break
                    decision = await self._go_on(journey, journey.decision.route.decode, error)
        yield completed

    @asynccontextmanager
    async def admitted(self, request: RoutedRequest) -> AsyncIterator[Admitted]:
        """A place for a request that somebody else sends (`passing`), until the block ends; it is
        refused, shortened and kept waiting as all are. Raises as `_admitted`."""
        with (
            self._reception.counted(request),
            self.in_flight.taken(request) as taken,
            await self._admitted(request := self._degradation.shortened(request)) as place,
        ):
            yield taken, request, place
            self._reception.over(request)

    async def _admitted(self, request: RoutedRequest) -> AdmissionLease:
        """Its place. Raises QueueFull, Hopeless, and DeadlineExceeded."""
        self._reception.came(request)
        return await self._placed(request)

    async def _placed(self, request: RoutedRequest, bill: Bill | None = None) -> AdmissionLease:
        """`bill`: of one that comes again. Raises as above."""
        admission = self._lines.of(request)
        asked = asked_by(request, self._desk, self._estimates, admission.pricings)
        asked.bill = bill
        if (arrival := request.arrival_in(self._decisions)) is not None:
            asked.arrival = arrival
        place = await admission.admit(asked)
        if arrival is not None:
            arrival.course.admitted_s = request.limits.clock()
        return place

    def _journey(
        self, request: RoutedRequest, counts: Sequence[ChoiceCount] | None, place: AdmissionLease
    ) -> Journey:
        """The request from its admission on, over all its workers. The caller closes it."""
        arrival = request.arrival_in(self._decisions)
        clock = RequestClock(
            request.limits.arrived_s,
            clock=request.limits.clock,
            on_gap=self._metrics.inter_token.observe,
            on_pause=lambda pause_s: self._chronicle.pause(journey, pause_s),
            course=None if arrival is None else arrival.course,
        )
        choices = RunningChoices(counts or new_counts(request.sampling.n), request.resume)
        attempts = Attempts(
            self._fleet, self._rules, WorkerNeeds.of(request), pooling=request.pooling
        )
        others = Others(self._evacuation, self._lines.of(request).preemption)
        journey = Journey(request, choices, attempts, clock, place, others)
        return journey

    async def _decide(self, journey: Journey) -> Decision:
        request, attempts = journey.request, journey.attempts
        try:
            await self._fleet.wait_for_decode(request.limits.to_first_token, request.pooling)
            if request.adapter is not None:
                request = await in_newest_version(journey, self._fleet, self._adapters)
            decision = self._desk.decide(request, attempts.excluded, journey.part)
        except (ContextTooLong, NoWorker) as error:  # where it has been it was right
            raise attempts.last_error or error from None
        decision.notes += (*_of_inputs(request), *journey.notes)
        if not request.follows:
            self._decisions.record(decision)
        if request.adapter is not None and (request.follows or request.num_inputs > 1):
            first = request.follows or request.request_id
            self._decisions.note(first, computed_by(request.adapter))
        if request.trace is not None:
            request.trace.routed(decision)
        if attempts.last_error is None:
            self._check_outlook(decision, request)
        journey.clock.dispatched()
        workers = (decision.route.decode, decision.computing)
        journey.goes_to(decision, *map(self._fleet.find, workers))
        return decision

    def _check_outlook(self, decision: Decision, request: RoutedRequest) -> None:
        """Raises Hopeless before anything is spent."""
        if (outlook := Outlook.of(decision, self._estimates)) is not None:
            deadline = request.limits.to_first_token
            outlook.check(outlook.least_ms, deadline, outlook.queue_ms / 1000)

    async def _go_on(self, journey: Journey, tried: WorkerKey, error: SplitserveError) -> Decision:
        """Where it goes on. Raises what the client is told where that is nowhere."""
        if isinstance(error, GaveWay):
            return await self._come_again(journey, error)
        cause = journey.attempts.cause_of(error)
        journey.go_on(tried, error)
        if journey.attempts.waits_for_others:
            await self._wait_for_another(journey)
        await self._share.breathe()  # a worker that is lost lets go of many at once
        decision = await self._decide(journey)
        self._chronicle.gone_on(journey, tried, cause, error)
        return decision

    async def _come_again(self, journey: Journey, error: GaveWay) -> Decision:
        """It waits for another place. Raises Hopeless where there is none in time."""
        self._chronicle.gave_way(journey, error)
        journey.comes_again(await self._placed(journey.request, journey.bill))
        return await self._decide(journey)

    async def _wait_for_another(self, journey: Journey) -> None:
        request = journey.request
        await self._fleet.wait_until(
            lambda: self._desk.has_place(request, journey.attempts.excluded),
            request.limits.to_first_token,
        )

    def _complete(
        self, decision: Decision, journey: Journey, told: tuple[Usage, Timing]
    ) -> Completed:
        """Measurements are made of undisturbed requests: a prompt that is scored takes more steps
        than another of its length."""
        usage, worker = summed_up(journey, told)
        completed = self._ended_well(decision, journey, usage, worker)
        sampling = journey.request.sampling
        is_usual = sampling.beams is None and sampling.prompt_logprobs is None
        if is_usual and not journey.has_moved:
            self._learn_from(decision, usage, completed.timing)
        return completed

    def _learn_from(self, decision: Decision, usage: Usage, timing: Timing) -> None:
        route, expected_tokens = decision.route, decision.expected_tokens
        prefill = prefill_worker_of(timing, route)
        computing = prefill or route.decode
        self._metrics.expected_tokens.inc(expected_tokens)
        self._estimates.finished(
            usage,
            timing,
            decode=route.decode,
            prefill=prefill,
            num_choices=decision.view.num_choices,
        )
        if computing == decision.computing:
            self._fleet.hits.compared(
                computing, expected_tokens=expected_tokens, found_tokens=usage.cached_tokens
            )

    def _complete_unheard(
        self, decision: Decision, journey: Journey, error: SplitserveError
    ) -> Completed:
        """The text is complete and its worker lost, or late: what is known here has to do."""
        self._chronicle.unheard(journey, error)
        usage, worker = summed_up_alone(journey)
        return self._ended_well(decision, journey, usage, worker)

    def _ended_well(
        self, decision: Decision, journey: Journey, usage: Usage, worker: Timing
    ) -> Completed:
        timing = journey.clock.complete(worker, longest_tokens=journey.longest_tokens)
        self._metrics.finished(usage, timing)
        self._metrics.classes.finished(journey.request.priority, usage, timing)
        self._decisions.finished(decision.request_id, usage, timing)
        if (trace := journey.request.trace) is not None:
            trace.answered(decision, usage, timing, journey.choices.reasons)
        self._reception.over(journey.request)
        return Completed(usage, timing, adapter_digest=journey.request.adapter_digest)


def _of_inputs(request: RoutedRequest) -> tuple[str, ...]:
    """In words, where there are several."""
    if request.num_inputs == 1:
        return ()
    return (f"the first of {request.num_inputs} inputs; where the others went is not kept",)
