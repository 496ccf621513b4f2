"""One EXPORT request: engine events in, stream messages out, in the order of the contract.

    SUBMITTED --Started--> COMPUTING --all blocks and first tokens--> DONE
                                      '- first tokens that are the last ones: nobody wants blocks
        any --RequestEnded--> ENDED        (before DONE: an error; after: nothing is pinned)

Accepted, then BlocksReady per chunk and one FirstToken as they come, then Done; ScoredTokens with
each chunk of a prompt whose tokens are to be scored, all before its first token. Before Done, and
whenever nothing else is to be said, Progress: as often as the engine gives a sign of life, so that
a reader can tell a long queue, or a long step, from an engine that stands still behind its server.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.errors import InternalError, SplitserveError, from_code
from cluster.generation import EngineLoad, Timing, Usage
from cluster.wire import prompt_token_to_wire, span_to_wire, token_to_wire
from engine.contract.messages import (
    Prefilled,
    PromptScored,
    QueuePlace,
    RequestEnded,
    Started,
    TokenEvent,
)
from protos import handoff_pb2
from worker.engine.link import LifeSign
from worker.engine.listeners import RequestEvent

PROGRESS_INTERVAL_S = 0.25
"""Less than that of an engine's beats: each of them is passed on."""


@dataclass(frozen=True, slots=True)
class ExportTimes:
    """Of one export, in seconds of this process's clock."""

    submitted_s: float
    began_s: float | None
    """The engine has; None: it has not."""
    announced_s: float | None
    """The first blocks were."""
    done_s: float
    """All that the reader waits for was announced; until then: now."""
    num_blocks: int
    """That were announced."""


class ExportState(enum.Enum):
    """Where one export is in its life."""

    SUBMITTED = "submitted"
    COMPUTING = "computing"
    DONE = "done"
    ENDED = "ended"


_UNDER_WAY = (ExportState.SUBMITTED, ExportState.COMPUTING)


class ExportStream:
    """The listener of one export. `next_message` gives the stream's messages, then None after Done.

    `first_block` to `num_blocks` are the blocks that the reader waits for. All calls from the
    event loop.
    """

    def __init__(
        self, *, first_block: int, num_blocks: int, num_choices: int, clock: Clock
    ) -> None:
        self._clock = clock
        self._said_s = clock()
        self._first_block = self._next_block = min(first_block, num_blocks)
        self._num_blocks = num_blocks
        self._num_choices = num_choices
        self._first_tokens: dict[int, handoff_pb2.ChoiceToken] = {}
        self._going_on: set[int] = set()
        """Choices that the reader will decode."""
        self._first_token_sent = False
        self._cached_tokens = 0
        self._tokens_ahead = 0
        self._submitted_s = clock()
        self._began_s: float | None = None
        self._announced_s: float | None = None
        self._queue_ms = 0.0
        self._timing: Timing | None = None
        self._usage: Usage | None = None
        self._error: SplitserveError | None = None
        self._messages: asyncio.Queue[handoff_pb2.PrefillEvent | None] = asyncio.Queue()
        self._state = ExportState.SUBMITTED
        self._ended = asyncio.Event()

    @property
    def state(self) -> ExportState:
        """Where the export is in its life."""
        return self._state

    @property
    def is_done(self) -> bool:
        """True once everything that the reader waits for has been announced."""
        has_all = self._next_block == self._num_blocks or not self._going_on
        return self._first_token_sent and has_all

    @property
    def timing(self) -> Timing | None:
        """Queue and compute times; None before the first token."""
        return self._timing

    @property
    def cached_tokens(self) -> int:
        """Of the prompt, found in the prefix cache."""
        return self._cached_tokens

    @property
    def error(self) -> SplitserveError | None:
        """What ended it; None: nothing, or its reader."""
        return self._error

    @property
    def times(self) -> ExportTimes:
        """As far as they have come."""
        done_s = self._said_s if self.is_done else self._clock()
        num_blocks = self._next_block - self._first_block
        return ExportTimes(self._submitted_s, self._began_s, self._announced_s, done_s, num_blocks)

    async def next_message(self) -> handoff_pb2.PrefillEvent | None:
        """The next message; None once Done was given. Raises the error that ended the export."""
        message = await self._messages.get()
        if message is None and self._error is not None:
            raise self._error
        return message

    async def wait_ended(self) -> None:
        """Returns when nothing is pinned any more, since no choice goes on.

        Raises what ended an export that was still read: its deadline, or the engine's death.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    def receive(self, event: RequestEvent) -> None:
        """See RequestListener."""
        match event:
            case Started():
                self._start(event)
            case QueuePlace():
                self._tokens_ahead = event.tokens_ahead
            case Prefilled():
                self._announce(event)
            case PromptScored():
                self._tell_scores(event)
            case TokenEvent():
                self._take_token(event)
            case RequestEnded():
                self._end(event)
            case _:
                raise InternalError(f"an export got a {type(event).__name__}")

    def engine_lives(self, load: EngineLoad, sign: LifeSign) -> None:
        """The engine has given a sign of life, about whatever request; its latest load."""
        is_due = self._clock() - self._said_s >= PROGRESS_INTERVAL_S
        if is_due and self._state in _UNDER_WAY and self._messages.empty():
            progress = handoff_pb2.Progress(
                waiting_prefill_tokens=load.waiting_prefill_tokens,
                tokens_ahead=self._tokens_ahead,
                in_long_step=sign is LifeSign.LONG_STEP,
            )
            self._say(handoff_pb2.PrefillEvent(progress=progress))

    def _say(self, message: handoff_pb2.PrefillEvent) -> None:
        self._said_s = self._clock()
        self._messages.put_nowait(message)

    def _start(self, event: Started) -> None:
        if self._state is not ExportState.SUBMITTED:
            return  # preempted and started again: the reader was told already
        self._state = ExportState.COMPUTING
        self._queue_ms = event.queue_ms
        self._began_s = self._submitted_s + event.queue_ms / 1000
        self._cached_tokens = event.cached_tokens
        accepted = handoff_pb2.Accepted(cached_tokens=event.cached_tokens)
        self._say(handoff_pb2.PrefillEvent(accepted=accepted))

    def _announce(self, event: Prefilled) -> None:
        ready = span_to_wire(event.span)
        self._say(handoff_pb2.PrefillEvent(blocks_ready=ready))
        self._announced_s = self._announced_s or self._said_s
        self._next_block = max(self._next_block, event.span.end_index)
        self._finish_if_done()

    def _tell_scores(self, event: PromptScored) -> None:
        scored = handoff_pb2.ScoredTokens(
            first_index=event.first_index, tokens=map(prompt_token_to_wire, event.tokens)
        )
        self._say(handoff_pb2.PrefillEvent(scored=scored))

    def _take_token(self, event: TokenEvent) -> None:
        self._first_tokens[event.choice] = handoff_pb2.ChoiceToken(
            choice=event.choice, token=token_to_wire(event.token)
        )
        if event.finish_reason is None:
            self._going_on.add(event.choice)
        if len(self._first_tokens) < self._num_choices or self._first_token_sent:
            return
        self._first_token_sent = True
        self._timing = self._measure()
        first = handoff_pb2.FirstToken(
            tokens=[token for _, token in sorted(self._first_tokens.items())],
            queue_ms=self._timing.queue_ms,
            prefill_ms=self._timing.prefill_ms,
            is_last=not self._going_on,
        )
        self._say(handoff_pb2.PrefillEvent(first_token=first))
        self._finish_if_done()

    def _measure(self) -> Timing:
        """Computing is what is left after queueing; hops between the processes count as that."""
        elapsed_ms = (self._clock() - self._submitted_s) * 1000
        return Timing(queue_ms=self._queue_ms, prefill_ms=max(0.0, elapsed_ms - self._queue_ms))

    def _finish_if_done(self) -> None:
        if self.is_done and self._state is ExportState.COMPUTING:
            self._state = ExportState.DONE
            self._say(handoff_pb2.PrefillEvent(done=handoff_pb2.Done()))
            self._messages.put_nowait(None)

    def _end(self, event: RequestEnded) -> None:
        if event.error_code:
            self._error = from_code(event.error_code, event.error_message)
        elif not self.is_done:
            self._error = InternalError("the engine ended an export before it was done")
        elif self._going_on:
            self._error = InternalError("the engine ended an export that was still read")
        self._state = ExportState.ENDED
        self._ended.set()
        self._messages.put_nowait(None)
