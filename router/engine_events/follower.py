"""Follows one engine's KV events, notices what is missing, and repairs it.

    (re)connected -> all forgotten -> the past is told -> live messages, number by number
    the past is not told -> live messages -> asked for again, later each time: what is believed
                            holds until the first message of the past is there
    a number is missing -> the past is asked for it  -> not there: all forgotten, on from here
    a lower number      -> an old message: passed over
                        -> later by its clock than the last one: another process, all anew
    cannot be read      -> all forgotten, on with the next

An engine has no snapshot. What was stored before its past begins is not known until it is stored
again, and it is never believed too much: what was forgotten is said of nobody.
"""

from __future__ import annotations

from typing import Protocol

import zmq.asyncio

from cluster.cache_change import CacheChange
from cluster.deadline import Deadline
from cluster.kv_events.subscriber import EventListener
from cluster.kv_events.subscription import Subscription
from cluster.kv_events.wire import decode_sequence
from cluster.logs import get_logger
from cluster.process.backoff import Backoff
from cluster.process.loop_share import LoopShare
from router.engine_events.engine_blocks import MAX_BLOCKS, EngineBlocks
from router.engine_events.replay import EnginePast, Hear
from router.engine_events.source import EngineEventSource
from router.engine_events.wire import MAX_PAYLOAD_BYTES, read_batch, read_events

RETRY_S = 5.0
"""After which a past that was not told is asked for again, at first."""
LONGEST_RETRY_S = 300.0
"""Live messages wait while a question is in vain, up to the time-out of an answer."""
MAX_UNREAD_MESSAGES = 256
"""While the past is told; more wait at the engine, which keeps 100,000."""
_MALFORMED = (ValueError, OverflowError)

_log = get_logger("engine_events")


class EngineEventListener(EventListener, Protocol):
    """An EventListener that hears of what is left out, too."""

    def note_left_out(self, why: str, num_blocks: int) -> None:
        """Blocks that the index is not told of; `why` is one of a few words."""


class EngineEventFollower:
    """Of one engine, until cancelled; then it says nothing more. `share`: of the loop, with other
    followers."""

    def __init__(
        self,
        source: EngineEventSource,
        listener: EngineEventListener,
        *,
        share: LoopShare,
        retry_s: float = RETRY_S,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        self._source = source
        self._listener = listener
        self._share = share
        self._retry_s = retry_s
        self._backoff = self._new_backoff()
        self._blocks = EngineBlocks(source, listener.note_left_out, max_blocks=max_blocks)
        self._next: int | None = None
        """Number of the next message; None: whichever comes."""
        self._last_ts = 0.0
        """When the last one was made, on the engine's clock."""
        self._ask_again = Deadline.never()
        self._has_warned = False
        """One line in the log for each connection: who sends garbage sends more of it."""

    @property
    def blocks(self) -> EngineBlocks:
        """What it has cached, as far as it was told; for checks."""
        return self._blocks

    async def run(self, context: zmq.asyncio.Context) -> None:
        """Follows until cancelled; an unreachable engine is tried again and again. The sockets are
        closed at the end, the context is the caller's."""
        with Subscription.open(
            context,
            self._source.pub,
            self._source.topic,
            max_message_bytes=MAX_PAYLOAD_BYTES,
            max_unread_messages=MAX_UNREAD_MESSAGES,
        ) as subscription:
            while True:
                heard = await subscription.wait(self._ask_again)
                if heard.connected:
                    await self._begin_anew(context)
                elif self._ask_again.has_passed:
                    await self._ask_for_all(context)
                if heard.has_message:
                    await self._take(context, await subscription.receive())

    async def _begin_anew(self, context: zmq.asyncio.Context) -> None:
        self._forget()
        self._next = None
        self._has_warned = False
        self._backoff = self._new_backoff()
        await self._ask_for_all(context)

    async def _ask_for_all(self, context: zmq.asyncio.Context) -> None:
        """What is believed by now holds until the past is told."""
        self._ask_again = Deadline.never()
        if await self._hear_past(context, None, self._apply_anew()):
            self._listener.note_resync()
        else:
            self._ask_again = Deadline.after(self._backoff.next_delay_s(healthy_s=0.0))

    def _apply_anew(self) -> Hear:
        has_begun = False

        async def hear(number: int, payload: bytes) -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                self._forget()
            await self._apply(number, payload)

        return hear

    def _new_backoff(self) -> Backoff:
        return Backoff(first_s=self._retry_s, longest_s=LONGEST_RETRY_S)

    async def _hear_past(self, context: zmq.asyncio.Context, first: int | None, hear: Hear) -> bool:
        """From `first` on; None: all of it. False when it was not told."""
        if not self._source.replay:
            return True
        try:
            await EnginePast(context, self._source.replay).tell(first, hear)
        except (TimeoutError, ValueError) as failure:
            self._warn("an engine did not tell its past KV events", failure)
            return False
        return True

    async def _take(self, context: zmq.asyncio.Context, frames: list[bytes]) -> None:
        await self._share.breathe()  # a busy engine's messages need not be waited for
        try:
            _, number_frame, payload = frames
            number = decode_sequence(number_frame)
        except ValueError as failure:
            self._warn("a message of an engine has no number; it is passed over", failure)
            return
        if self._is_of_another_process(number, payload):
            await self._begin_anew(context)
        elif self._next is not None and number > self._next:
            self._listener.note_gap()
            await self._hear_past(context, self._next, self._apply)
            if self._next <= number:
                self._forget()
                self._next = None
        if self._next is None or number >= self._next:
            await self._apply(number, payload)

    def _is_of_another_process(self, number: int, payload: bytes) -> bool:
        if self._next is None or number >= self._next:
            return False
        try:
            return read_batch(payload).ts > self._last_ts
        except ValueError:
            return False

    async def _apply(self, number: int, payload: bytes) -> None:
        await self._share.breathe()
        self._next = number + 1
        try:
            batch = read_batch(payload)
            self._last_ts = batch.ts
            for event in read_events(batch):
                for change in self._blocks.changes(event):
                    self._listener.apply(change)
                    await self._share.breathe()
        except _MALFORMED as failure:
            self._warn("an engine's KV events cannot be true; all of them are forgotten", failure)
            self._listener.note_gap()
            self._forget()

    def _forget(self) -> None:
        if len(self._blocks):
            self._blocks.clear()
            self._listener.apply(CacheChange(cleared=True))

    def _warn(self, text: str, failure: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(text, source=self._source.pub, error=str(failure) or repr(failure))
