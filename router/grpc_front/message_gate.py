"""Which messages of strangers a port receives at the same time.

    enter -> waits -> has a place (timer) -> received
               |            |--> SlowRequest: out of time
               |            '--> NotReady: it is doubted, others wait, and its patience is over
               '--> NotReady: too many wait

gRPC gathers a message before anybody sees it, as large as its limit allows, and only once it is
asked for: what is not asked for yet is a window of 64 KiB at most. So who asks bounds the bytes.
Nobody sees how a message proceeds, either. So a place is kept until its time is over, however many
wait, and newcomers have their turn (`fair_turns`); who held places for messages that never came
(`lost_time`) comes last, and is the one that gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from cluster.errors import NotReady, SlowRequest, SplitserveError
from router.front.caller import Caller
from router.front.fair_turns import CallerCounts, last_in_turn, may_give_way, next_in_turn
from router.grpc_front.heard_before import HeardBefore
from router.grpc_front.lost_time import LostTime, LostTimeLimits

_LOOK_S = 0.05
_LOOKS_PER_PATIENCE = 4
Message = TypeVar("Message")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Of one gate."""

    max_receiving: int
    """Places."""
    max_waiting: int
    """For a place; over it somebody is refused."""
    timeout_s: float
    """For one message, from its place on."""
    patience_s: float
    """Of those who wait, with a doubted one that has a place."""
    lost_time: LostTimeLimits | None = None
    """Whom it doubts; None: everybody at any time, for messages that take none."""
    max_known: int = 0
    """Connections that are remembered for messages that came whole: they are next before others
    that have no more places, and refused after them. For messages that take no time: elsewhere
    newcomers would never have their turn."""


@dataclass(slots=True, eq=False)
class _Receipt:
    caller: Caller
    is_known: bool
    is_doubted: bool
    turn: asyncio.Future[None]
    began_s: float = 0.0
    limit: asyncio.Timeout | None = None
    gives_way: bool = False
    is_whole: bool = False

    def end(self, now_s: float) -> None:
        """For who waits: it leaves in one of the next turns of the loop. Idempotent; nothing
        happens to a message whose reading has not begun."""
        limit, self.limit = self.limit, None
        if limit is not None and not limit.expired():
            self.gives_way = True
            limit.reschedule(now_s)


class MessageGate:
    """All calls from the event loop's thread."""

    def __init__(self, limits: GateLimits) -> None:
        self._limits = limits
        self._look_s = min(_LOOK_S, limits.patience_s / _LOOKS_PER_PATIENCE)
        self._receiving: dict[_Receipt, None] = {}
        self._waiting: dict[_Receipt, None] = {}
        self._taken = CallerCounts()
        self._overdue: set[_Receipt] = set()
        self._heard = HeardBefore(limits.max_known)
        self._lost = None if limits.lost_time is None else LostTime(limits.lost_time)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_receiving(self) -> int:
        """Messages that have a place."""
        return len(self._receiving)

    async def receive(self, caller: Caller, read: Callable[[], Awaitable[Message]]) -> Message:
        """Reads one message in its turn. Raises SlowRequest and NotReady."""
        turn = asyncio.get_running_loop().create_future()
        receipt = _Receipt(caller, self._heard.spend(caller), self._is_doubted(caller), turn)
        self._enter(receipt)
        try:
            await receipt.turn
            async with asyncio.timeout(self._limits.timeout_s) as receipt.limit:
                message = await read()
            receipt.is_whole = True
            return message
        except TimeoutError:
            raise self._too_late(receipt) from None
        finally:
            self._leave(receipt)

    def _is_doubted(self, caller: Caller) -> bool:
        now_s = asyncio.get_running_loop().time()
        return self._lost is None or self._lost.is_doubted(caller.address, now_s)

    def _too_late(self, receipt: _Receipt) -> SplitserveError:
        if receipt.gives_way:
            return NotReady(
                f"the message had not come after {self._limits.patience_s:g} s, and others wait "
                "for its place; try again later"
            )
        return SlowRequest(
            f"the message did not arrive within {self._limits.timeout_s:g} s; send it faster"
        )

    def _enter(self, receipt: _Receipt) -> None:
        self._waiting[receipt] = None
        self._grant_turns()
        if len(self._waiting) > self._limits.max_waiting:
            self._refuse_one()
        self._look_later()

    def _leave(self, receipt: _Receipt) -> None:
        self._waiting.pop(receipt, None)
        if receipt in self._receiving:
            del self._receiving[receipt]
            self._taken.remove(receipt.caller)
            self._judge(receipt)
        self._grant_turns()
        self._look_later()

    def _judge(self, receipt: _Receipt) -> None:
        """By what came of its place. Who gives way might have come in time."""
        caller, now_s = receipt.caller, asyncio.get_running_loop().time()
        if receipt.is_whole:
            self._heard.note(caller)
        if self._lost is None or (receipt.gives_way and not receipt.is_whole):
            return
        settle = self._lost.make_good if receipt.is_whole else self._lost.lose
        settle(caller.address, now_s - receipt.began_s, now_s)
        is_doubted = self._is_doubted(caller)
        for waiting in self._waiting:
            if waiting.caller.address == caller.address:
                waiting.is_doubted = is_doubted

    def _grant_turns(self) -> None:
        num_places = self._limits.max_receiving
        while self._waiting and self._taken.num < num_places:
            receipt = next_in_turn(self._waiting, self._taken, num_places)
            if receipt is None:
                return
            self._grant(receipt)

    def _grant(self, receipt: _Receipt) -> None:
        del self._waiting[receipt]
        self._receiving[receipt] = None
        self._taken.add(receipt.caller)
        receipt.began_s = asyncio.get_running_loop().time()
        if not receipt.turn.done():
            receipt.turn.set_result(None)

    def _refuse_one(self) -> None:
        refused = last_in_turn(self._waiting)
        del self._waiting[refused]
        if not refused.turn.done():
            refused.turn.set_exception(
                NotReady("too many messages are being received at once; try again later")
            )

    def _look_later(self) -> None:
        """A look is due while somebody waits."""
        if not self._waiting:
            self._stop_looking()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _look(self) -> None:
        """Who is overdue at two looks running is ended: between them is read what had arrived
        while our own loop stood."""
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        overdue = set(self._overdue_at(now_s))
        for receipt in overdue & self._overdue:
            receipt.end(now_s)
        self._overdue = overdue
        self._look_later()

    def _overdue_at(self, now_s: float) -> list[_Receipt]:
        """The oldest, and no more than wait."""
        latest_s = now_s - self._limits.patience_s
        late = (r for r in self._receiving if r.is_doubted and r.began_s <= latest_s)
        return may_give_way(late, self._waiting, self._taken)[: len(self._waiting)]

    def _stop_looking(self) -> None:
        self._overdue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
