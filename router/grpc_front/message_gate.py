"""Which messages of strangers a port receives at the same time.

    enter -> waits -> has a place (timer) -> received
               |            |--> SlowRequest: out of time
               |            '--> NotReady: it is doubted, others wait, and have waited long enough
               '--> NotReady: too many wait, or it waited for too long

gRPC gathers a message before anybody sees it, as large as its limit allows, and only once it is
asked for: what is not asked for yet is a window of 64 KiB at most. So who asks bounds the bytes.
Nobody sees how a message proceeds, either. So a place is kept until its time is over, however many
wait, and newcomers have their turn (`fair_turns`); who is doubted (`standing`) comes last, and is
the one that gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from cluster.deadline import Clock, Deadline, deadline_passed, end_now
from cluster.errors import NotReady, SlowRequest, SplitserveError
from router.front.caller import Caller
from router.front.fair_turns import (
    CallerCounts,
    has_place_for,
    last_in_turn,
    may_give_way,
    next_in_turn,
)
from router.grpc_front.standing import PlaceOutcome, Standing

_LOOK_S = 0.05
_LOOKS_PER_PLACE = 4
Message = TypeVar("Message")
BeginReading = Callable[[Callable[[], None]], Awaitable[Message]]
"""Called when it has a place; calls what it is given once its message has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Of one gate."""

    max_receiving: int
    """Places."""
    max_waiting: int
    """For a place; over it somebody is refused."""
    max_wait_s: float
    """For a place; after it, who waits is refused."""
    timeout_s: float
    """For one message, from its place on."""
    gives_way_after_s: float
    """So long a doubted one keeps its place while others wait."""


@dataclass(slots=True, eq=False)
class _Receipt:
    caller: Caller
    is_known: bool
    turn: asyncio.Future[bool]
    """False: it is refused."""
    is_doubted: bool = False
    """When turns were last given; for who has a place, when it got that."""
    began_s: float = 0.0
    limit: asyncio.Timeout | None = None
    outcome: PlaceOutcome = PlaceOutcome.LOST

    def has_arrived(self) -> None:
        """Nobody ends it any more: what it waits for is ours. Idempotent."""
        limit, self.limit = self.limit, None
        if limit is not None and not limit.expired():
            limit.reschedule(None)

    def end(self) -> None:
        """For who waits: it leaves in one of the next turns of the loop. Idempotent; nothing
        happens to a message whose reading has not begun, or that has arrived."""
        limit, self.limit = self.limit, None
        if limit is not None and not limit.expired():
            self.outcome = PlaceOutcome.GAVE_WAY
            end_now(limit)


class MessageGate:
    """All calls from the event loop's thread. What decides is `clock`; timers only look."""

    def __init__(self, limits: GateLimits, standing: Standing, clock: Clock) -> None:
        self._limits = limits
        self._standing = standing
        self._clock = clock
        self._look_s = min(_LOOK_S, limits.gives_way_after_s / _LOOKS_PER_PLACE)
        self._receiving: dict[_Receipt, None] = {}
        self._waiting: dict[_Receipt, None] = {}
        self._taken = CallerCounts()
        self._in_line = CallerCounts()
        self._overdue: set[_Receipt] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._gives_turns = False

    @property
    def num_receiving(self) -> int:
        """Messages that have a place."""
        return len(self._receiving)

    async def receive(
        self, caller: Caller, read: BeginReading[Message], until: Deadline
    ) -> Message:
        """Reads one message in its turn. Raises SlowRequest, NotReady and, `until` being over,
        DeadlineExceeded."""
        turn = asyncio.get_running_loop().create_future()
        receipt = _Receipt(caller, self._standing.is_known(caller), turn)
        self._enter(receipt)
        try:
            if not (turn.result() if turn.done() else await self._turn(receipt, until)):
                raise NotReady("too many messages are being received at once; try again later")
            return await self._message(receipt, read, until)
        finally:
            self._leave(receipt)

    async def _turn(self, receipt: _Receipt, until: Deadline) -> bool:
        limit = until.sooner_of(self._limits.max_wait_s)
        try:
            async with limit.bound():
                return await receipt.turn
        except TimeoutError:
            raise self._waited(is_the_call_s=limit == until) from None

    async def _message(
        self, receipt: _Receipt, read: BeginReading[Message], until: Deadline
    ) -> Message:
        limit = until.sooner_of(self._limits.timeout_s)
        try:
            async with limit.bound() as receipt.limit:
                message = await read(receipt.has_arrived)
        except TimeoutError:
            raise self._too_late(receipt, is_the_call_s=limit == until) from None
        receipt.outcome = PlaceOutcome.WHOLE
        return message

    def _waited(self, *, is_the_call_s: bool) -> SplitserveError:
        if is_the_call_s:
            return deadline_passed(None)
        return NotReady(
            f"the message had no turn for {self._limits.max_wait_s:g} s; try again later"
        )

    def _too_late(self, receipt: _Receipt, *, is_the_call_s: bool) -> SplitserveError:
        if receipt.outcome is PlaceOutcome.GAVE_WAY:
            return NotReady(
                f"the message had not come after {self._limits.gives_way_after_s:g} s, and others "
                "wait for its place; try again later"
            )
        if is_the_call_s:
            return deadline_passed(None)
        return SlowRequest(
            f"the message did not arrive within {self._limits.timeout_s:g} s; send it faster"
        )

    def _enter(self, receipt: _Receipt) -> None:
        if not self._waiting and self._has_place_for(receipt.caller):
            self._grant(receipt)
            return
        self._waiting[receipt] = None
        self._in_line.add(receipt.caller)
        receipt.is_doubted = self._standing.is_doubted(receipt.caller)
        if len(self._waiting) > self._limits.max_waiting:
            self._refuse_one()
        self._something_changed()

    def _has_place_for(self, caller: Caller) -> bool:
        return has_place_for(caller, self._taken, self._limits.max_receiving)

    def _leave(self, receipt: _Receipt) -> None:
        self._leave_line(receipt)
        if receipt in self._receiving:
            del self._receiving[receipt]
            self._taken.remove(receipt.caller)
            took_s = self._clock() - receipt.began_s
            self._standing.settle(receipt.caller, receipt.outcome, took_s)
        self._something_changed()

    def _leave_line(self, receipt: _Receipt) -> None:
        """Idempotent."""
        if receipt in self._waiting:
            del self._waiting[receipt]
            self._in_line.remove(receipt.caller)

    def _something_changed(self) -> None:
        """However many come and leave in one turn of the loop, all who wait are looked at once."""
        if not self._waiting:
            self._stop_looking()
            return
        if not self._gives_turns and self._taken.num < self._limits.max_receiving:
            self._gives_turns = True
            asyncio.get_running_loop().call_soon(self._give_turn)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _give_turn(self) -> None:
        """One, and in the loop's next turn another."""
        self._gives_turns = False
        for waiting in self._waiting:
            waiting.is_doubted = self._standing.is_doubted(waiting.caller)
        receipt = next_in_turn(self._waiting, self._taken, self._limits.max_receiving)
        if receipt is not None:
            self._leave_line(receipt)
            self._grant(receipt)
            self._something_changed()

    def _grant(self, receipt: _Receipt) -> None:
        self._receiving[receipt] = None
        self._taken.add(receipt.caller)
        receipt.is_doubted = self._standing.is_doubted(receipt.caller)
        receipt.began_s = self._clock()
        if not receipt.turn.done():
            receipt.turn.set_result(True)

    def _refuse_one(self) -> None:
        refused = last_in_turn(self._waiting, self._in_line)
        self._leave_line(refused)
        if not refused.turn.done():
            refused.turn.set_result(False)

    def _look(self) -> None:
        """Who is overdue at two looks running is ended: between them is read what had arrived
        while our own loop stood."""
        self._timer = None
        overdue = set(self._overdue_at(self._clock()))
        for receipt in overdue & self._overdue:
            receipt.end()
        self._overdue = overdue
        self._something_changed()

    def _overdue_at(self, now_s: float) -> list[_Receipt]:
        """The oldest, and no more than wait."""
        if not self._waiting:
            return []
        latest_s = now_s - self._limits.gives_way_after_s
        late = (r for r in self._receiving if r.is_doubted and r.began_s <= latest_s)
        return may_give_way(late, self._waiting, self._taken)[: len(self._waiting)]

    def _stop_looking(self) -> None:
        self._overdue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
