"""Which messages of strangers a port receives at the same time.

    enter -> waits -> has a place (timer) -> received
               |            |--> SlowRequest: out of time, or it gave way to others
               '--> NotReady: too many wait

gRPC gathers a message before anybody sees it, as large as its limit allows, and only once it is
asked for: what is not asked for yet is a window of 64 KiB at most. So who asks bounds the bytes.
Where places are short, the peer with the most of them gives way, its oldest first; among equals,
whoever has had a place for PATIENCE_S.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from cluster.errors import NotReady, SlowRequest

PATIENCE_S = 2.0
MAX_WAITING = 256
_LOOK_AGAIN_S = 0.05
Message = TypeVar("Message")


@dataclass(slots=True, eq=False)
class _Receipt:
    peer: str
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

    def __init__(self, max_receiving: int, timeout_s: float) -> None:
        """`timeout_s`: for one message, from its place on."""
        self._max_receiving = max_receiving
        self._timeout_s = timeout_s
        self._receiving: dict[_Receipt, None] = {}
        self._waiting: dict[_Receipt, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_receiving(self) -> int:
        """Messages that have a place."""
        return len(self._receiving)

    async def receive(self, peer: str, read: Callable[[], Awaitable[Message]]) -> Message:
        """Reads one message in its turn. Raises SlowRequest and NotReady."""
        receipt = _Receipt(peer, asyncio.get_running_loop().create_future())
        self._enter(receipt)
        try:
            await receipt.turn
            async with asyncio.timeout(self._timeout_s) as receipt.limit:
                return await read()
        except TimeoutError:
            raise SlowRequest(
                f"the message did not arrive within {self._timeout_s:g} s, or too many others "
                "came meanwhile; send it faster"
            ) from None
        finally:
            self._leave(receipt)

    def _enter(self, receipt: _Receipt) -> None:
        if len(self._receiving) < self._max_receiving:
            self._grant(receipt)
            return
        self._waiting[receipt] = None
        if len(self._waiting) > MAX_WAITING:
            self._refuse_one()
        self._make_room()

    def _leave(self, receipt: _Receipt) -> None:
        self._receiving.pop(receipt, None)
        self._waiting.pop(receipt, None)
        while self._waiting and len(self._receiving) < self._max_receiving:
            held = _num_of_peers(self._receiving)
            self._grant(min(self._waiting, key=lambda each: held[each.peer]))
        self._make_room()

    def _grant(self, receipt: _Receipt) -> None:
        self._waiting.pop(receipt, None)
        self._receiving[receipt] = None
        receipt.began_s = asyncio.get_running_loop().time()
        if not receipt.turn.done():
            receipt.turn.set_result(None)

    def _refuse_one(self) -> None:
        """The last to come of the peer that has the most in line."""
        waiting = _num_of_peers(self._waiting)
        refused = max(reversed(self._waiting), key=lambda each: waiting[each.peer])
        del self._waiting[refused]
        if not refused.turn.done():
            refused.turn.set_exception(
                NotReady("too many messages are being received at once; try again later")
            )

    def _make_room(self) -> None:
        """While somebody waits, somebody is asked to leave, or it looks again when that is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        due_s = loop.time() - PATIENCE_S
        oldest = next(iter(self._receiving))
        if (heaviest := self._heaviest()) is not None:
            heaviest.end(loop.time())
        elif oldest.began_s <= due_s:
            oldest.end(loop.time())
        wait_s = max(oldest.began_s - due_s, _LOOK_AGAIN_S)
        self._timer = loop.call_later(wait_s, self._make_room)

    def _heaviest(self) -> _Receipt | None:
        """The oldest of the peer with most places, where that is more than who waits has."""
        held = _num_of_peers(self._receiving)
        heaviest = max(self._receiving, key=lambda each: held[each.peer])
        least = min(held[each.peer] for each in self._waiting)
        return heaviest if held[heaviest.peer] > least + 1 else None


def _num_of_peers(receipts: Iterable[_Receipt]) -> Counter[str]:
    return Counter(each.peer for each in receipts)
