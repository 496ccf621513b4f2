"""What one request's decode worker sends, in order, until its end.

    add_prompt* -> add_tokens* -> end | fail
                                  finish of a choice, and close, by the consumer at any time

What comes is told to the listener in that moment, however far the consumer has read. A consumer
that is behind gets the tokens of a choice that have come meanwhile in one piece; one that waits may
have a taker, who gets them without its being woken (token_taker.py).
Holds at most what the request may produce: a worker that sends more has broken the contract. And at
most so many bytes that nobody reads (unread.py): a client that lags further behind has left.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from cluster.deadline import Clock
from cluster.errors import Cancelled, InternalError, SplitserveError, from_code
from cluster.generation import FinishReason, GeneratedToken, Timing, Usage
from cluster.prompt_stages import PromptStages, stages_from_wire
from cluster.wire import reason_from_wire, timing_from_wire, token_from_wire, usage_from_wire
from protos import generation_pb2, worker_pb2
from router.fleet.token_taker import TakerFault, TokenTaker
from router.fleet.unread import ChoiceTokens, UnreadBytes
from router.fleet.wakes import Wakes


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A worker's last word on a request that ended well."""

    usage: Usage
    timing: Timing
    stages: PromptStages | None = None


WorkerMessage = worker_pb2.PromptTokens | ChoiceTokens | Ended
_Item = WorkerMessage | SplitserveError | TakerFault
PARSED_PER_PACKED_BYTE = 4
"""Of a message's own memory, about."""
MAX_JOINED_TOKENS = 256
"""In one piece: a millisecond of work for who reads it."""


class StreamListener(msgspec.Struct, frozen=True):
    """Hears what comes, however far the consumer has read."""

    on_prompt: Callable[[float], None] = lambda now_s: None
    """Tokens of the prompt have come with their logprobs, and when."""
    on_computed: Callable[[worker_pb2.PromptComputed], None] = lambda computed: None
    """What the prompt took; the first tokens follow at once."""
    on_searched: Callable[[int], None] = lambda num_tokens: None
    """So many tokens have the beams of a search by now."""
    on_tokens: Callable[[int, int, float], None] = lambda choice, num_tokens, now_s: None
    """A choice, how many tokens of it have come, and when."""
    on_end: Callable[[SplitserveError | None], None] = lambda error: None
    """The worker is through, or told to stop; with the request's error, if it has one. Once, and
    nothing after it; not where the consumer closes first."""


NOBODY = StreamListener()


class RequestStream:
    """One consumer; the session and the request's deadline are the producers."""

    def __init__(
        self,
        *,
        max_tokens: int,
        max_prompt_tokens: int = 0,
        has_logprobs: bool = True,
        on_finish: Callable[[int], None],
        on_close: Callable[[], None],
        listener: StreamListener = NOBODY,
        unread: UnreadBytes | None = None,
        wakes: Wakes | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`max_prompt_tokens`: of the prompt, that may come with a logprob. `has_logprobs`: False:
        nobody asked for those of the answer, and none is looked for. `on_close`: nobody
        waits for it any more, which the worker is to be told unless it knows; once at most.
        `unread`: the router's, which this stream counts its part in. `wakes`: of the session, which
        flushes them; None: who waits is woken at once."""
        self._tokens_left = max_tokens
        self._token_of = token_from_wire if has_logprobs else _bare_token
        self._prompt_tokens_left = max_prompt_tokens
        self._on_finish = on_finish
        self._on_close = on_close
        self._listener = listener
        self._items: deque[_Item] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._wakes = wakes
        self._is_due = False
        """With the wakes."""
        self._taker: TokenTaker | None = None
        self._over = False
        self._all_unread = unread or UnreadBytes()
        self._unread_bytes = 0
        self._clock = clock
        self.last_token_s: float | None = None
        """When the latest tokens came from the worker, read or not; None: there are none yet."""

    @property
    def is_caught_up(self) -> bool:
        """True when the consumer has taken all that has come, and there is more to come."""
        return not self._over and not self._items

    def add_prompt(self, scored: worker_pb2.PromptTokens) -> None:
        """Tokens of the prompt with their logprobs."""
        self._prompt_tokens_left -= len(scored.tokens)
        if self._prompt_tokens_left < 0:
            self.fail(InternalError("the decode worker scored more of the prompt than there is"))
        elif not self._over:
            own = worker_pb2.PromptTokens.FromString(scored.SerializeToString())
            self._keep(own, _num_bytes_of(own))
            self._listener.on_prompt(self._clock())

    def add_computed(self, computed: worker_pb2.PromptComputed) -> None:
        """The prompt is computed."""
        if not self._over:
            self._listener.on_computed(computed)

    def add_searched(self, num_tokens: int) -> None:
        """So far a beam search has come."""
        if not self._over:
            self._listener.on_searched(num_tokens)

    def add_tokens(self, tokens: worker_pb2.Tokens, now_s: float | None = None) -> None:
        """New tokens of one choice. `now_s`: of the frame that they came in; None: now."""
        is_first = self.last_token_s is None
        self.last_token_s = now_s = self._clock() if now_s is None else now_s
        own = [self._token_of(token) for token in tokens.tokens]
        self._tokens_left -= len(own)
        if self._tokens_left < 0:
            self.fail(InternalError("the decode worker sent more tokens than were asked for"))
        elif not self._over:
            choice = tokens.choice
            self._listener.on_tokens(choice, len(own), now_s)
            item = ChoiceTokens(choice, own, reason_from_wire(tokens.finish_reason))
            self._keep(item, item.num_bytes, is_urgent=is_first)

    def add_pooled(self, values: bytes) -> None:
        """What became of a prompt that is pooled: all that there is of its answer."""
        if not self._over:
            self.last_token_s = now_s = self._clock()
            self._listener.on_tokens(0, 0, now_s)
            item = ChoiceTokens(0, [], FinishReason.STOP, values)
            self._keep(item, item.num_bytes)

    def end(self, ended: worker_pb2.Ended) -> None:
        """The worker's last word."""
        if ended.HasField("error"):
            self.fail(from_code(ended.error.code, ended.error.message))
        elif not self._over:
            self._over = True
            stages = stages_from_wire(ended.stages) if ended.HasField("stages") else None
            usage, timing = usage_from_wire(ended.usage), timing_from_wire(ended.timing)
            self._add(Ended(usage, timing, stages))
            self._listener.on_end(None)

    def fail(self, error: SplitserveError) -> None:
        """The request ends with an error, after what has arrived; the first end counts. The worker
        is told now: until the consumer has read so far, minutes may pass."""
        if not self._over:
            self._over = True
            self._add(error)
            self._on_close()
            self._listener.on_end(error)

    def hand_to(self, taker: TokenTaker) -> None:
        """Tokens that come while `next` waits are the taker's, but for the first ones."""
        self._taker = taker

    def hand_on(self) -> None:
        """See TokenReader. Whoever waits goes on waiting where the taker has taken all."""
        self._is_due = False
        taker, waiter = self._taker, self._waiter
        if taker is not None and waiter is not None and not waiter.done():
            self._give(taker)
        if self._items:
            self._wake()

    def _give(self, taker: TokenTaker) -> None:
        items = self._items
        try:
            while items and isinstance(item := items[0], ChoiceTokens) and taker.is_ready():
                items.popleft()
                taker.take(self._read(item))
        except Exception as error:
            items.appendleft(TakerFault(error))

    async def next(self) -> WorkerMessage:
        """The next message; nothing may be asked for after Ended. Raises the request's error, and
        TakerFault."""
        items = self._items
        while not items:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        item = items.popleft()
        if isinstance(item, ChoiceTokens):
            return self._read(item)
        if isinstance(item, (SplitserveError, TakerFault)):
            raise item
        self._count(-_num_bytes_of(item))
        return item

    def _read(self, tokens: ChoiceTokens) -> ChoiceTokens:
        """Which are counted no more, with what follows of their choice and has come."""
        if not self._items:
            self._count(-self._unread_bytes)
            return tokens
        self._count(-tokens.num_bytes)
        return self._joined(tokens)

    def _joined(self, first: ChoiceTokens) -> ChoiceTokens:
        if first.pooled is not None:
            return first
        items, tokens, reason = self._items, list(first.tokens), first.finish_reason
        while items and len(tokens) < MAX_JOINED_TOKENS:
            item = items[0]
            if not isinstance(item, ChoiceTokens) or item.choice != first.choice:
                break
            tokens += item.tokens
            reason = item.finish_reason
            self._count(-item.num_bytes)
            items.popleft()
        return ChoiceTokens(first.choice, tokens, reason)

    def finish(self, choice: int) -> None:
        """The consumer has seen enough of a choice: the worker need not go on with it."""
        if not self._over:
            self._on_finish(choice)

    def close(self) -> None:
        """The consumer has gone: cancels at the worker unless the request has ended there."""
        self._drop_unread()
        if not self._over:
            self._over = True
            self._on_close()

    def _add(self, item: _Item) -> None:
        self._items.append(item)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _keep(
        self,
        item: worker_pb2.PromptTokens | ChoiceTokens,
        num_bytes: int,
        *,
        is_urgent: bool = True,
    ) -> None:
        """Until it is read; what nobody reads is dropped, and the request with it."""
        self._items.append(item)
        if is_urgent or self._wakes is None:
            self._wake()
        elif not self._is_due and self._waiter is not None and not self._waiter.done():
            self._is_due = True
            self._wakes.add(self)
        self._count(num_bytes)
        if not self._all_unread.has_room_for(self._unread_bytes):
            num_bytes = self._unread_bytes
            self._drop_unread()
            self.fail(Cancelled(f"the client left {num_bytes} bytes of its answer unread"))

    def _drop_unread(self) -> None:
        self._items.clear()
        self._count(-self._unread_bytes)

    def _count(self, num_bytes: int) -> None:
        self._unread_bytes += num_bytes
        self._all_unread.num += num_bytes


def _bare_token(message: generation_pb2.GeneratedToken) -> GeneratedToken:
    """In half of the time: a look for what is not there costs as much as one at what is."""
    return GeneratedToken(message.token_id)


def _num_bytes_of(item: WorkerMessage) -> int:
    if isinstance(item, ChoiceTokens):
        return item.num_bytes
    if isinstance(item, worker_pb2.PromptTokens):
        return PARSED_PER_PACKED_BYTE * item.ByteSize()
    return 0
