"""The conductor: admit, decide, send, relay, account.

    admit -> wait for a decode worker -> decide -> send -> relay tokens -> Completed
                                           ^         |        |               ^
                                           |         |        '- all stopped -'
                                           '---------' an error before any token that another
                                                       worker may not have: once more, elsewhere

A request ends once: with Completed, with one error, or because the caller closed the iterator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from cluster.errors import ContextTooLong, InternalError, SplitserveError, status_of
from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from router.dispatch.admission import Admission, AdmissionLease
from router.dispatch.attempts import Attempts
from router.dispatch.request_clock import RequestClock
from router.dispatch.routing import RoutingDesk
from router.dispatch.running_choices import RunningChoices
from router.dispatch.running_request import RunningRequest, prefill_worker_of
from router.dispatch.stream import (
    ChoiceTokens,
    Completed,
    PromptTokens,
    RoutedRequest,
    StreamEvent,
)
from router.dispatch.time_limits import NothingCame
from router.fleet.fleet import Fleet
from router.index.prefix_index import PrefixIndex
from router.pricing.estimates import Estimates
from router.telemetry.decisions import Decision, DecisionLog
from router.telemetry.metrics import RouterMetrics
from router.text.choice_count import ChoiceCount, new_counts

_log = get_logger("dispatcher")


class Dispatcher:
    """The TokenSource of a router. All calls from the event loop."""

    def __init__(
        self,
        admission: Admission,
        fleet: Fleet,
        index: PrefixIndex,
        estimates: Estimates,
        metrics: RouterMetrics,
        decisions: DecisionLog,
        *,
        chance: Random,
    ) -> None:
        self._admission = admission
        self._fleet = fleet
        self._index = index
        self._estimates = estimates
        self._metrics = metrics
        self._decisions = decisions
        self._desk = RoutingDesk(fleet, index, estimates, chance)
        metrics.watch_queue(lambda: admission.num_queued, lambda: admission.num_running)
        metrics.watch_index(lambda: index.num_blocks)

    async def generate(
        self, request: RoutedRequest, counts: Sequence[ChoiceCount] | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """See `TokenSource.generate`."""
        clock = RequestClock(
            request.limits.arrived_s,
            clock=request.limits.clock,
            on_gap=self._metrics.inter_token.observe,
        )
        choices = RunningChoices(counts or new_counts(request.sampling.n))
        attempts = Attempts(self._fleet)
        deadline = request.limits.to_first_token
        with (
            self._counted(),
            await self._admission.admit(request.tenant, deadline) as place,
        ):
            while True:
                decision = await self._decide(request, clock, attempts)
                decode = decision.route.decode
                try:
                    with self._sent(request, decision, place) as run:
                        choices.run_by(run)
                        while isinstance(event := await run.next(), PromptTokens | ChoiceTokens):
                            if isinstance(event, PromptTokens):
                                yield event
                            elif choices.take(event):
                                clock.tokens(event.choice, len(event.tokens))
                                yield event
                        completed = self._complete(decision, choices, event, clock)
                        break
                except SplitserveError as error:
                    if choices.are_over:
                        completed = self._complete_unheard(decision, choices, clock, error)
                        break
                    attempts.failed(decode, error)
                    if clock.has_token or not attempts.may_go_on(error):
                        raise
                    self._note_retry(request, decode, error)
                    if isinstance(error, NothingCame):
                        request = replace(request, limits=request.limits.begun_again())
        yield completed

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts how a request ended, unless it ended well."""
        try:
            yield
        except BaseException as end:
            self._metrics.requests.labels(_outcome_of(end)).inc()
            raise

    async def _decide(
        self, request: RoutedRequest, clock: RequestClock, attempts: Attempts
    ) -> Decision:
        await self._fleet.wait_for_decode(request.limits.to_first_token)
        try:
            decision = self._desk.decide(request, attempts.tried)
        except ContextTooLong as error:  # where it has not been: its length was fine elsewhere
            raise attempts.first_error or error from None
        self._decisions.record(decision)
        clock.dispatched()
        attempts.sent(decision.route.decode)
        return decision

    @contextmanager
    def _sent(
        self, request: RoutedRequest, decision: Decision, place: AdmissionLease
    ) -> Iterator[RunningRequest]:
        """The request at its workers, until the block ends; its place is free when they end."""
        run = RunningRequest(
            self._desk.fitted(request, decision.route.decode),
            decision.view,
            decision.route,
            self._fleet,
            self._index,
            on_end=place.release,
        )
        self._metrics.routes.labels(decision.route.reason.value).inc()
        try:
            yield run
        finally:
            run.close()

    def _note_retry(self, request: RoutedRequest, tried: WorkerKey, error: SplitserveError) -> None:
        self._metrics.retries.inc()
        _log.warning(
            "a worker failed before the first token; the request goes to another worker",
            request_id=request.request_id,
            worker_id=tried.worker_id,
            code=status_of(error).code,
            error=error.message,
        )

    def _complete(
        self,
        decision: Decision,
        choices: RunningChoices,
        told: tuple[Usage, Timing],
        clock: RequestClock,
    ) -> Completed:
        usage, worker = choices.summed_up(told)
        timing = clock.complete(worker, longest_tokens=choices.longest_tokens)
        route = decision.route
        self._metrics.expected_tokens.inc(decision.expected_tokens)
        self._estimates.finished(
            usage,
            timing,
            decode=route.decode,
            prefill=prefill_worker_of(timing, route),
            num_choices=decision.view.num_choices,
        )
        return self._ended_well(decision, usage, timing)

    def _complete_unheard(
        self,
        decision: Decision,
        choices: RunningChoices,
        clock: RequestClock,
        error: SplitserveError,
    ) -> Completed:
        """The text is complete and its worker lost, or late: what is known here has to do."""
        _log.warning(
            "the answer is complete, but without its worker's usage and timing",
            request_id=decision.request_id,
            code=status_of(error).code,
            error=error.message,
        )
        usage = Usage(decision.view.prompt_tokens, choices.num_tokens, cached_tokens=0)
        worker = Timing(decode_worker=decision.route.decode.worker_id)
        timing = clock.complete(worker, longest_tokens=choices.longest_tokens)
        return self._ended_well(decision, usage, timing)

    def _ended_well(self, decision: Decision, usage: Usage, timing: Timing) -> Completed:
        self._metrics.finished(usage, timing)
        self._decisions.finished(decision.request_id, usage, timing)
        return Completed(usage, timing)


def _outcome_of(end: BaseException) -> str:
    """An error's code; "cancelled" when the caller closed the iterator or was cancelled."""
    if isinstance(end, SplitserveError):
        return status_of(end).code
    return status_of(InternalError("")).code if isinstance(end, Exception) else "cancelled"
