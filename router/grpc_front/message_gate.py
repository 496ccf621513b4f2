"""Which messages of strangers a port receives at the same time.

    enter -> waits -> has a place (timer) -> received
               |            |--> SlowRequest: out of time, or it gave way to others
               '--> NotReady: too many wait

gRPC gathers a message before anybody sees it, as large as its limit allows, and only once it is
asked for: what is not asked for yet is a window of 64 KiB at most. So who asks bounds the bytes.
Where places are short, who has most of them gives way, the oldest first (`fair_turns`); among
equals, whoever has had a place for as long as others are asked to be patient.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from cluster.errors import NotReady, SlowRequest
from router.grpc_front.caller import Caller
from router.grpc_front.fair_turns import last_in_turn, next_in_turn, who_gives_way
from router.grpc_front.heard_before import HeardBefore

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
    """Of those who wait, with who has a place and no more of them than they."""
    max_known: int = 0
    """Connections that are remembered for messages that came whole: they are next before others
    that have no more places, and refused after them. For messages that take no time: elsewhere
    newcomers would never have their turn."""


@dataclass(slots=True, eq=False)
class _Receipt:
    caller: Caller
    is_known: bool
    turn: asyncio.Future[None]
    began_s: float = 0.0
    limit: asyncio.Timeout | None = None

    def end(self, now_s: float) -> None:
        """Its time is over: it leaves in one of the next turns of the loop. Idempotent; nothing
        happens to a message whose reading has not begun."""
        limit, self.limit = self.limit, None
        if limit is not None and not limit.expired():
            limit.reschedule(now_s)


class MessageGate:
    """All calls from the event loop's thread."""

    def __init__(self, limits: GateLimits) -> None:
        self._limits = limits
        self._look_s = min(_LOOK_S, limits.patience_s / _LOOKS_PER_PATIENCE)
        self._receiving: dict[_Receipt, None] = {}
        self._waiting: dict[_Receipt, None] = {}
        self._overdue: set[_Receipt] = set()
        self._heard = HeardBefore(limits.max_known)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_receiving(self) -> int:
        """Messages that have a place."""
        return len(self._receiving)

    async def receive(self, caller: Caller, read: Callable[[], Awaitable[Message]]) -> Message:
        """Reads one message in its turn. Raises SlowRequest and NotReady."""
        turn = asyncio.get_running_loop().create_future()
        receipt = _Receipt(caller, self._heard.spend(caller), turn)
        self._enter(receipt)
        try:
            await receipt.turn
            async with asyncio.timeout(self._limits.timeout_s) as receipt.limit:
                message = await read()
            self._heard.note(caller)
            return message
        except TimeoutError:
            raise SlowRequest(
                f"the message did not arrive within {self._limits.timeout_s:g} s, or too many "
                "others came meanwhile; send it faster"
            ) from None
        finally:
            self._leave(receipt)

    def _enter(self, receipt: _Receipt) -> None:
        if len(self._receiving) < self._limits.max_receiving:
            self._grant(receipt)
            return
        self._waiting[receipt] = None
        if len(self._waiting) > self._limits.max_waiting:
            self._refuse_one()
        self._make_room()

    def _leave(self, receipt: _Receipt) -> None:
        self._receiving.pop(receipt, None)
        self._waiting.pop(receipt, None)
        while self._waiting and len(self._receiving) < self._limits.max_receiving:
            self._grant(next_in_turn(self._waiting, self._receiving))
        self._make_room()

    def _grant(self, receipt: _Receipt) -> None:
        self._waiting.pop(receipt, None)
        self._receiving[receipt] = None
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

    def _make_room(self) -> None:
        """While somebody waits, who has too many places is asked to leave one, and a look is due
        at the others."""
        if not self._waiting:
            self._stop_looking()
            return
        loop = asyncio.get_running_loop()
        if (greedy := who_gives_way(self._receiving, self._waiting)) is not None:
            greedy.end(loop.time())
        if self._timer is None:
            self._timer = loop.call_later(self._look_s, self._look)

    def _look(self) -> None:
        """Who is overdue at two looks running is ended: between them is read what had arrived
        while our own loop stood."""
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        latest_s = now_s - self._limits.patience_s
        oldest = islice(self._receiving, len(self._waiting))
        overdue = {receipt for receipt in oldest if receipt.began_s <= latest_s}
        for receipt in overdue & self._overdue:
            receipt.end(now_s)
        self._overdue = overdue
        self._make_room()

    def _stop_looking(self) -> None:
        self._overdue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
