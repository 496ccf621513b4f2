"""One request at its workers: from the decision to the last word.

    sent -> first token (prefill worker released) -> ... -> Completed | error -> read -> closed
                                                      '-> finish of the last choice: a second more

At its first end, read or not, it leaves its workers: they are judged, and their counts settled.
`close` settles the rest once: the stream, and what is left behind.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from cluster.errors import SplitserveError, WorkerLost, status_of
from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from cluster.prompt_stages import stages_from_wire
from cluster.wire import prompt_token_from_wire, timing_from_wire
from protos import worker_pb2
from router.dispatch.chosen_workers import ChosenWorkers
from router.dispatch.stay import Stay
from router.dispatch.stream import ChoiceTokens, PromptCost, PromptTokens, RoutedRequest
from router.dispatch.time_limits import ProgressWatch, TimeLimits
from router.fleet.fleet import Fleet
from router.fleet.request_stream import Ended, RequestStream, StreamListener
from router.fleet.stage import RequestStage
from router.fleet.token_taker import TokenTaker
from router.index.prefix_index import PrefixIndex
from router.pricing.route import Route, RoutingView

FINISH_TIMEOUT_S = 1.0
"""A worker answers the finish of a last choice within a step; one that dies must hold up nobody."""


class RunFollower(Protocol):
    """Hears of a request at its workers, however far its client has read."""

    def computed(self, cost: PromptCost) -> None:
        """The first tokens come next; what was computed before them took this."""

    def searched(self, num_tokens: int) -> None:
        """So many tokens have the beams of a search that a worker does."""

    def has_tokens(self) -> None:
        """The first tokens have come, read or not. Once."""

    def ended(self, error: SplitserveError | None) -> None:
        """No worker will do anything more for it, but for what `error` lets another one do. Once;
        not where the client leaves first."""


class RunningRequest:
    """Sent when constructed. Raises WorkerLost when the decode worker went in that moment."""

    def __init__(
        self,
        request: RoutedRequest,
        view: RoutingView,
        route: Route,
        fleet: Fleet,
        index: PrefixIndex,
        follower: RunFollower,
    ) -> None:
        workers = ChosenWorkers.of(view, route, fleet)
        self.decode, self._route = route.decode, route
        self._fleet, self._follower = fleet, follower
        self._standstill = workers.standstill
        self._between_tokens_s = request.limits.between_tokens_s
        self._is_local = workers.is_local
        self._begun = set[int]()
        """Choices that have a token: the first may be the prefill worker's, the next are not."""
        self._uncomputed = {begun.choice: len(begun.token_ids) for begun in request.resume}
        """Tokens of choices that go on, and have no new one yet."""
        self._is_search = request.sampling.beams is not None
        """Its tokens come all at once, at its end."""
        self._has_decoded = False
        self._has_left = self._has_failed = False
        self._goodbye: asyncio.TimerHandle | None = None
        self._clock = request.limits.clock
        self._stay = Stay(request, workers, route, fleet, index)
        self.leg, self._left_behind = self._stay.leg, self._stay.left_behind
        self._stream = self._sent(request, workers)
        self._watch = self._watched(request.limits)
        try:
            self._stay.begin(request, workers)
        except BaseException:
            self.close()  # nobody else can
            raise

    @property
    def is_caught_up(self) -> bool:
        """True when all that has come is read, and there is more to come."""
        return self._stream.is_caught_up

    @property
    def stage(self) -> RequestStage:
        """How far it is here; one that failed here waits for another worker, or for its end."""
        if self._has_failed:
            return RequestStage.QUEUED
        if not self._begun:
            return RequestStage.PREFILL
        is_here = self._is_local or self._has_decoded or self._has_left
        return RequestStage.DECODE if is_here else RequestStage.TRANSFER

    async def next(self) -> PromptTokens | ChoiceTokens | tuple[Usage, Timing]:
        """New tokens, or at the end the worker's usage and timing. Raises the request's error."""
        message = await self._stream.next()
        if isinstance(message, ChoiceTokens):
            return message
        if isinstance(message, Ended):
            self._stay.ended(message.usage, message.timing, self._computed_by(message.timing))
            self.leg.stages = message.stages or self.leg.stages
            return message.usage, message.timing
        scored = [prompt_token_from_wire(token) for token in message.tokens]
        return PromptTokens(message.first_index, scored)

    def hand_to(self, taker: TokenTaker) -> None:
        """Tokens that come while `next` waits are the taker's, but for the first ones."""
        self._stream.hand_to(taker)

    def finish(self, choice: int, *, is_last: bool) -> None:
        """No more of a choice, please. After the last one, `next` ends within FINISH_TIMEOUT_S."""
        self._stream.finish(choice)
        if is_last:
            self._watch.stop()
            self._goodbye = asyncio.get_running_loop().call_later(
                FINISH_TIMEOUT_S, self._give_up_on_the_end
            )

    def leave(self, why: SplitserveError) -> None:
        """Ends it here with that error, after what has arrived; the worker is told to stop."""
        self._stream.fail(why)

    def close(self) -> None:
        """Cancels at the worker unless the request has ended there; idempotent."""
        self._leave()
        self.leg.over(self._clock(), "cancelled")
        if self._goodbye is not None:
            self._goodbye.cancel()
        self._stream.close()
        self._stay.close()

    def _computed_by(self, timing: Timing) -> WorkerKey:
        """Who has computed its prompt, by the decode worker's word."""
        return prefill_worker_of(timing, self._route) or self.decode

    def _sent(self, request: RoutedRequest, workers: ChosenWorkers) -> RequestStream:
        submission = workers.submission(request)
        if request.trace is not None and self.leg.span_id is not None:
            submission.trace.CopyFrom(request.trace.parent_of(self.leg.span_id))
        return workers.session.submit(
            submission,
            max_tokens=request.max_answer_tokens,
            max_prompt_tokens=request.max_scored_tokens,
            listener=StreamListener(
                on_prompt=self._heed_prompt,
                on_computed=self._heed_computed,
                on_searched=self._follower.searched,
                on_tokens=self._heed_tokens,
                on_end=self._heed_end,
            ),
        )

    def _watched(self, limits: TimeLimits) -> ProgressWatch:
        return ProgressWatch(
            limits,
            lambda: self._stream.last_token_s,
            self._stream.fail,
            stands=self._worker_stands,
        )

    def _worker_stands(self) -> bool:
        return self._standstill.has_lasted(self._between_tokens_s)

    def _heed_prompt(self, now_s: float) -> None:
        """Of a prompt that others compute the logprobs are theirs."""
        if self._is_local:
            self._standstill.made(now_s)

    def _heed_computed(self, computed: worker_pb2.PromptComputed) -> None:
        timing = timing_from_wire(computed.timing)
        self.leg.computed_s = self._clock()
        if computed.HasField("stages"):
            self.leg.stages = stages_from_wire(computed.stages)
        self._stay.computed(self._computed_by(timing), computed.cached_tokens)
        self._follower.computed(PromptCost(computed.cached_tokens, timing))
        if self._is_search:
            self._follower.has_tokens()
            self._stay.prefilled()

    def _heed_tokens(self, choice: int, num_tokens: int, now_s: float) -> None:
        """They have come, read or not. One that the decode worker has made itself says that its
        engine works; the first of all, that the prompt is computed."""
        self._left_behind.made(num_tokens)
        if not self._begun:
            self.leg.first_token_s = now_s
            self._follower.has_tokens()
        if choice not in self._begun:
            self._note_computed(choice)
        if self._is_local or choice in self._begun or num_tokens > 1:
            self._standstill.made(now_s)
            if not self._has_decoded:
                self._note_decoded()
        self._begun.add(choice)

    def _heed_end(self, error: SplitserveError | None) -> None:
        """It is over, read or not; with an error it may go on elsewhere."""
        if error is None:
            self._standstill.ended_well()
            if not self._has_decoded:
                self._fleet.note_good_end(self.decode)
        else:
            self._has_failed = True
            self._stay.failed()
        self._stay.over("" if error is None else status_of(error).code)
        self._leave()
        self._follower.ended(error)

    def _leave(self) -> None:
        """The workers have nothing more to do for it; idempotent. However it leaves, with a worker
        that stands the fault is that worker's."""
        if self._has_left:
            return
        self._has_left = True
        if self._worker_stands() and not self._watch.is_blind:
            self._fleet.note_request(self.decode, failed=True)
        self._watch.stop()
        self._stay.release()

    def _note_computed(self, choice: int) -> None:
        """The prompt is, with its first token; of choices that go on each is with its own."""
        self._uncomputed.pop(choice, None)
        self._stay.num_begun_choices += 1
        self._stay.prefilled(sum(self._uncomputed.values()))

    def _note_decoded(self) -> None:
        self._has_decoded = True
        self._stay.decoded()
        self._fleet.note_request(self.decode, failed=False)

    def _give_up_on_the_end(self) -> None:
        self._stream.fail(
            WorkerLost(
                f"decode worker {self.decode.worker_id} sent no usage and timing within "
                f"{FINISH_TIMEOUT_S:.0f} s of the last token; its log says why"
            )
        )


def prefill_worker_of(timing: Timing, route: Route) -> WorkerKey | None:
    """The proposed worker that computed the prompt; None when the decode worker did."""
    named = [key for key in route.prefill if key.worker_id == timing.prefill_worker]
    return named[0] if named else None
