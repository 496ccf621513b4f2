"""One request at its workers: from the decision to the last word.

    sent -> first token (prefill worker released) -> ... -> Completed | error -> closed
                                                      '-> finish of the last choice: a second more

`close` settles everything once: the stream, the workers' counts and what is left behind there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from cluster.errors import SplitserveError, WorkerLost
from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from cluster.wire import (
    prompt_token_from_wire,
    reason_from_wire,
    sampling_to_wire,
    timing_from_wire,
    token_from_wire,
    usage_from_wire,
)
from protos import worker_pb2
from router.dispatch.left_behind import LeftBehind
from router.dispatch.stream import ChoiceTokens, PromptTokens, RoutedRequest
from router.dispatch.time_limits import ProgressWatch
from router.fleet.fleet import Fleet
from router.fleet.member import Assignment, FleetMember
from router.fleet.request_stream import WorkerMessage
from router.index.prefix_index import PrefixIndex
from router.pricing.route import Route, RoutingView

FINISH_TIMEOUT_S = 1.0
"""A worker answers the finish of a last choice within a step; one that dies must hold up nobody."""


class RunningRequest:
    """Sent when constructed. Raises WorkerLost when the decode worker went in that moment."""

    def __init__(
        self,
        request: RoutedRequest,
        view: RoutingView,
        route: Route,
        fleet: Fleet,
        index: PrefixIndex,
        *,
        on_end: Callable[[], None],
    ) -> None:
        """`on_end`: the worker is through with it, however far its client has read."""
        self.decode = route.decode
        self._fleet = fleet
        member = fleet.find(route.decode)
        if member is None or member.session is None:
            raise WorkerLost(f"decode worker {route.decode.worker_id} left; try again")
        targets = [item for key in route.prefill if (item := fleet.find(key)) is not None]
        submit = _submit_message(request, member, targets)
        limit = request.sampling.n * request.sampling.max_tokens
        scores = request.sampling.prompt_logprobs is not None
        self._member, self._limits = member, request.limits
        self._sent_s = request.limits.clock()
        self._stream = member.session.submit(
            submit,
            max_tokens=limit,
            max_prompt_tokens=len(request.token_ids) - 1 if scores else 0,
            on_tokens=self._heed_tokens,
            on_end=self._leave_the_workers,
        )
        self._on_end = on_end
        self._watch = ProgressWatch(
            request.limits,
            lambda: self._stream.last_token_s,
            self._stream.fail,
            stands=self._worker_stands,
        )
        self._goodbye: asyncio.TimerHandle | None = None
        found = {item.key: item.matched_tokens for item in (*view.decode, *view.prefill)}
        self._assignments: list[Assignment] = []
        self._left_behind = LeftBehind(request, found, member, targets, index)
        self._begun = set[int]() if targets else set(range(request.sampling.n))
        """Choices whose next token is the decode worker's own: the first may be the prefill's."""
        self._heard = set(self._begun)
        self._has_decoded = False
        try:
            self._assignments.extend(_assign(request, found, member, targets[:1]))
            self._left_behind.expect()
        except BaseException:
            self.close()  # nobody else can
            raise

    async def next(self) -> PromptTokens | ChoiceTokens | tuple[Usage, Timing]:
        """New tokens, or at the end the worker's usage and timing. Raises the request's error."""
        message = await self._next_message()
        if isinstance(message, worker_pb2.PromptTokens):
            scored = [prompt_token_from_wire(token) for token in message.tokens]
            return PromptTokens(message.first_index, scored)
        for assignment in self._assignments[1:]:
            assignment.release()  # the prefill worker's part is over with the first token
        self._assignments[0].prefilled()
        if isinstance(message, worker_pb2.Ended):
            usage, timing = usage_from_wire(message.usage), timing_from_wire(message.timing)
            self._left_behind.ended(usage, timing)
            if not self._has_decoded:
                self._fleet.note_good_end(self.decode)
            return usage, timing
        tokens = [token_from_wire(token) for token in message.tokens]
        self._note_tokens(message.choice, len(tokens))
        return ChoiceTokens(message.choice, tokens, reason_from_wire(message.finish_reason))

    def finish(self, choice: int, *, is_last: bool) -> None:
        """No more of a choice, please. After the last one, `next` ends within FINISH_TIMEOUT_S."""
        self._stream.finish(choice)
        if is_last:
            self._watch.stop()
            self._goodbye = asyncio.get_running_loop().call_later(
                FINISH_TIMEOUT_S, self._give_up_on_the_end
            )

    def close(self) -> None:
        """Cancels at the worker unless the request has ended there; idempotent."""
        self._watch.stop()
        if self._goodbye is not None:
            self._goodbye.cancel()
        self._stream.close()
        self._release()
        self._left_behind.settle()

    async def _next_message(self) -> WorkerMessage:
        try:
            return await self._stream.next()
        except SplitserveError:
            self._left_behind.failed()
            raise

    def _leave_the_workers(self) -> None:
        self._release()
        self._on_end()

    def _release(self) -> None:
        for assignment in self._assignments:
            assignment.release()

    def _note_tokens(self, choice: int, num_tokens: int) -> None:
        """One that the decode worker has made itself says that its engine works."""
        self._left_behind.made(num_tokens)
        if not self._has_decoded and (choice in self._begun or num_tokens > 1):
            self._has_decoded = True
            self._left_behind.decoded()
            self._fleet.note_request(self.decode, failed=False)
        self._begun.add(choice)

    def _heed_tokens(self, choice: int, num_tokens: int) -> None:
        """They have come, read or not: one that the decode worker has made says that it lives."""
        if choice in self._heard or num_tokens > 1:
            self._member.last_token_s = self._stream.last_token_s
        self._heard.add(choice)

    def _worker_stands(self) -> bool:
        last_s = self._member.last_token_s
        return self._limits.has_stood(max(self._sent_s, last_s or self._sent_s))

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


def _assign(
    request: RoutedRequest,
    found: Mapping[WorkerKey, int],
    decode: FleetMember,
    prefill: list[FleetMember],
) -> Iterator[Assignment]:
    """The decode worker's share first, then the first prefill worker's; each counts at once.
    `found`: tokens of the prompt that each is believed to have."""
    num_prompt = len(request.token_ids)
    total = num_prompt + request.sampling.n * request.sampling.max_tokens

    def uncached(item: FleetMember) -> int:
        return max(1, num_prompt - found.get(item.key, 0))

    local_tokens = 0 if prefill else uncached(decode)
    yield decode.assign(num_tokens=total, prefill_tokens=local_tokens)
    for item in prefill:
        yield item.assign(num_tokens=num_prompt, prefill_tokens=uncached(item))


def _submit_message(
    request: RoutedRequest, decode: FleetMember, prefill: list[FleetMember]
) -> worker_pb2.Submit:
    return worker_pb2.Submit(
        request_id=request.request_id,
        token_ids=request.token_ids,
        sampling=sampling_to_wire(request.sampling),
        prefill=[
            worker_pb2.PrefillTarget(
                worker_id=item.key.worker_id,
                incarnation=item.key.incarnation,
                address=item.member.address,
            )
            for item in prefill
        ],
        cache_root=request.root_at(decode.pairing_key),
        timeout_ms=max(1.0, request.limits.whole.remaining_ms),
        asked_s=request.limits.asked_s,
    )
