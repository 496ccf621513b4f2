"""A router's side of KV events: follows one worker, notices gaps, repairs them.

    BEHIND --snapshot--> FOLLOWING --a number is missing--> replay --still missing--> snapshot
       ^                     |
       '--- (re)connected ---'                 no answer: BEHIND, nothing believed, asked again

While BEHIND, live messages are left alone: the next snapshot contains them. It is asked for when
its time has come, however much the worker says meanwhile. What is applied goes in
slices, with turns of the event loop between them; messages that arrive meanwhile wait in order.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

import msgspec
import zmq.asyncio

from cluster.cache_change import CacheChange
from cluster.deadline import Deadline
from cluster.kv_events.keys import ReaderKeys
from cluster.kv_events.replay import ReplayMessage, ask
from cluster.kv_events.subscription import Subscription
from cluster.kv_events.wire import (
    END,
    MAX_MESSAGE_BYTES,
    decode_batch,
    decode_sequence,
    encode_sequence,
    to_changes,
)
from cluster.logs import get_logger
from cluster.process.loop_share import LoopShare

RETRY_S = 1.0
RECEIVE_QUEUE_MESSAGES = 100_000
_MALFORMED = (ValueError, OverflowError, msgspec.DecodeError)

_log = get_logger("kv_events")


class FollowState(enum.Enum):
    """Whether what was told to the listener is complete."""

    BEHIND = "behind"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class EventAddresses:
    """Where a worker's events are to be had."""

    pub: str
    replay: str
    """Empty: it has nothing to say of the past."""
    topic: str = ""
    keys: ReaderKeys | None = None
    """None: it tells everybody."""


class EventListener(Protocol):
    """Hears what a worker's cache does, in order, from the event loop."""

    def apply(self, change: CacheChange) -> None:
        """After a `cleared` change everything alive is told again. A large event comes as several
        changes, and other work may run between them."""

    def note_gap(self) -> None:
        """Events were lost."""

    def note_resync(self) -> None:
        """Everything alive has been told."""


class KvEventSubscriber:
    """Follows one worker's events until cancelled; then it says nothing more. `share`: of the loop,
    with other subscribers."""

    def __init__(
        self,
        addresses: EventAddresses,
        listener: EventListener,
        *,
        retry_s: float = RETRY_S,
        share: LoopShare | None = None,
    ) -> None:
        self._addresses = addresses
        self._listener = listener
        self._retry_s = retry_s
        self._share = share or LoopShare()
        self._state = FollowState.BEHIND
        self._next_resync = Deadline.never()
        """When to ask again; looked at while BEHIND."""
        self._last: int | None = None
        """Number of the last message applied; None: the next one is taken as it comes."""
        self._knows = False

    @property
    def state(self) -> FollowState:
        """Whether the listener knows everything."""
        return self._state

    @property
    def position(self) -> int | None:
        """Number of the last message that the listener has all of; None while it does not know
        everything, and before the first."""
        return self._last if self._state is FollowState.FOLLOWING else None

    async def run(self, context: zmq.asyncio.Context) -> None:
        """Follows until cancelled; an unreachable worker is tried again and again. The sockets are
        closed at the end, the context is the caller's."""
        told = self._addresses
        with Subscription.open(
            context,
            told.pub,
            told.topic,
            max_message_bytes=MAX_MESSAGE_BYTES,
            max_unread_messages=RECEIVE_QUEUE_MESSAGES,
            keys=told.keys,
        ) as subscription:
            await self._follow(context, subscription)

    async def _follow(self, context: zmq.asyncio.Context, subscription: Subscription) -> None:
        self._next_resync = Deadline.after(self._retry_s)
        while True:
            is_behind = self._state is FollowState.BEHIND
            heard = await subscription.wait(self._next_resync if is_behind else Deadline.never())
            if heard.connected or (is_behind and self._next_resync.has_passed):
                await self._resync(context)
            if heard.has_message:
                await self._take(context, await subscription.receive())

    async def _take(self, context: zmq.asyncio.Context, frames: list[bytes]) -> None:
        if self._state is FollowState.BEHIND:
            await self._share.breathe()  # a busy worker's messages need not be waited for
            return
        try:
            _, number_frame, payload = frames
            number = decode_sequence(number_frame)
            if self._last is None or number == self._last + 1:
                await self._apply(number, payload)
            elif number > self._last:
                self._listener.note_gap()
                await self._repair(context, self._last + 1, number)
        except _MALFORMED as failure:
            _log.warning(
                "a KV event is malformed; asking the worker for all it has cached",
                source=self._addresses.pub,
                error=str(failure),
            )
            await self._resync(context)

    async def _repair(self, context: zmq.asyncio.Context, first: int, seen: int) -> None:
        """Asks for what lies between; `seen` is the number that showed the gap."""
        for number, payload in await self._ask(context, encode_sequence(first)) or []:
            if number == first:
                await self._apply(number, payload)
                first += 1
        if first <= seen:
            await self._resync(context)

    async def _resync(self, context: zmq.asyncio.Context) -> None:
        """Forgets everything and learns it anew; BEHIND when nobody answers."""
        self._state = FollowState.BEHIND
        answer = await self._ask_for_everything(context)
        self._next_resync = Deadline.after(self._retry_s)
        self._forget()
        if answer is None:
            return
        try:
            for number, payload in answer:
                if self._last is not None and number > self._last + 1:
                    raise ValueError(f"messages {self._last + 1} to {number - 1} are missing")
                await self._apply(number, payload)
        except _MALFORMED as failure:
            _log.warning(
                "a worker's list of cached blocks is malformed; asking again",
                source=self._addresses.pub,
                error=str(failure),
            )
            self._forget()
            return
        self._state = FollowState.FOLLOWING
        self._listener.note_resync()

    async def _ask_for_everything(self, context: zmq.asyncio.Context) -> list[ReplayMessage] | None:
        """A snapshot, or what a publisher without snapshots still has; None: no answer.

        A worker without a replay socket has nothing to say of the past.
        """
        if not self._addresses.replay:
            return []
        answer = await self._ask(context, END)
        return answer or (
            answer if answer is None else await self._ask(context, encode_sequence(0))
        )

    async def _ask(self, context: zmq.asyncio.Context, start: bytes) -> list[ReplayMessage] | None:
        if not self._addresses.replay:
            return None
        try:
            told = self._addresses
            return await ask(context, told.replay, start, self._share, told.keys)
        except (TimeoutError, ValueError) as failure:
            _log.warning(
                "a worker did not list its cached blocks; asking again",
                source=self._addresses.replay,
                error=str(failure),
            )
            return None

    async def _apply(self, number: int, payload: bytes) -> None:
        await self._share.breathe()
        for change in to_changes(decode_batch(payload)):
            self._listener.apply(change)
            self._knows = True
            await self._share.breathe()
        self._last = number

    def _forget(self) -> None:
        self._last = None
        if self._knows:
            self._knows = False
            self._listener.apply(CacheChange(cleared=True))
