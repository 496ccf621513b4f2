"""The bytes of large bodies that a router holds at once, before it knows what they ask for.

    open -> arriving: grow_to* -> arrived -> closed     a body comes, is read by a text worker, goes
                  '--> dropped: it did not come on while others had no room

An address has as much of them as leaves room for others (`fair_turns`); its only body may have all
that is free. Small bodies do not count: their number is bounded with the connections, and no crowd
of large ones keeps them out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from cluster.deadline import Clock, end_now
from cluster.errors import NotReady, SlowRequest
from router.front.caller import Caller
from router.front.fair_turns import CallerCounts, share_of_address
from router.front.text_work import LARGE_BODY_BYTES

STANDSTILL_S = 0.5
"""Without progress, before a body may be dropped for another one's sake."""
PROGRESS_BYTES = 16 * 1024
"""Progress, at least; of a large body more."""
SLOWEST_PACE = 0.5
"""Of the pace at which a body that grows evenly just comes within its time. What comes slower holds
what it has for nothing: it would not come in time."""


class BodyAccount:
    """One per process, for HTTP and gRPC. All calls from the event loop's thread."""

    def __init__(
        self, max_bytes: int, *, within_s: float = 10.0, clock: Clock = time.monotonic
    ) -> None:
        """`within_s`: the time that one body has to arrive in."""
        self._max_bytes = max_bytes
        self._clock = clock
        self._progress_per_byte = SLOWEST_PACE * STANDSTILL_S / within_s
        self._arriving: dict[HeldBody, None] = {}
        self._held = CallerCounts()

    @property
    def num_bytes(self) -> int:
        """Held now."""
        return self._held.num

    def open(self, who: Callable[[], Caller]) -> HeldBody:
        """For one body; close it by leaving its `with`. `who` sends it: asked once it is large."""
        return HeldBody(self, who, self._clock)

    def progress_of(self, num_bytes: int) -> int:
        """How much more makes progress of a body that has so many bytes."""
        return max(PROGRESS_BYTES, int(num_bytes * self._progress_per_byte))

    def take(self, taker: HeldBody, num_bytes: int) -> None:
        """Bodies that do not come on are dropped for it, the longest first. Raises NotReady, and
        takes nothing, when there is no room all the same."""
        while not self._has_room(taker, num_bytes):
            slowest = self._slowest(taker)
            if slowest is None:
                raise self._no_room(taker.caller)
            slowest.drop()
        self._held.add(taker.caller, num_bytes)

    def give_back(self, taker: HeldBody) -> None:
        """All that was taken for it."""
        if taker.num_bytes:
            self._held.remove(taker.caller, taker.num_bytes)

    @contextmanager
    def arriving(self, body: HeldBody) -> Iterator[None]:
        """Until the block ends, the body may be dropped."""
        self._arriving[body] = None
        try:
            yield
        finally:
            del self._arriving[body]

    def _has_room(self, taker: HeldBody, num_bytes: int) -> bool:
        of_address = self._held.of_address(taker.caller)
        num_left = self._max_bytes - self.num_bytes - num_bytes
        is_only_one = of_address == taker.num_bytes
        has_share = is_only_one or of_address + num_bytes <= share_of_address(num_left)
        return num_left >= 0 and has_share

    def _slowest(self, taker: HeldBody) -> HeldBody | None:
        """Of those that do not come on, and whose addresses have no less than the taker's."""
        fewest = self._held.of_address(taker.caller)
        latest_s = self._clock() - STANDSTILL_S
        slow = (
            body
            for body in self._arriving
            if body is not taker
            and body.num_bytes
            and body.moved_s <= latest_s
            and self._held.of_address(body.caller) >= fewest
        )
        return min(slow, key=lambda body: body.moved_s, default=None)

    def _no_room(self, caller: Caller) -> NotReady:
        return NotReady(
            f"bodies of {self.num_bytes} bytes are being received, {self._held.of_address(caller)} "
            f"of them from this address; allowed: {self._max_bytes}, of which an address leaves a "
            "third of what it has to others; try again later"
        )


class HeldBody:
    """One body's part of the account."""

    def __init__(self, account: BodyAccount, who: Callable[[], Caller], clock: Clock) -> None:
        self._account = account
        self._who = who
        self._caller: Caller | None = None
        self._clock = clock
        self._progress_at_bytes = PROGRESS_BYTES
        self._limit: asyncio.Timeout | None = None
        self._is_dropped = False
        self.num_bytes = 0
        self.moved_s = clock()
        """When it last had made progress."""

    @property
    def caller(self) -> Caller:
        """Who sends it."""
        if self._caller is None:
            self._caller = self._who()
        return self._caller

    @contextmanager
    def arriving(self, limit: asyncio.Timeout) -> Iterator[None]:
        """`limit` is ended where the body is dropped. Raises SlowRequest then."""
        self._limit = limit
        with self._account.arriving(self):
            try:
                yield
            except asyncio.CancelledError:
                self._check()  # the limit, which takes back its own cancellation as it is left
                raise

    def grow_to(self, num_bytes: int) -> None:
        """So many bytes have arrived. Raises NotReady when there is no room for them."""
        self._check()
        if num_bytes >= self._progress_at_bytes:
            self._progress_at_bytes = num_bytes + self._account.progress_of(num_bytes)
            self.moved_s = self._clock()
        if num_bytes > LARGE_BODY_BYTES:
            self._account.take(self, num_bytes - self.num_bytes)
            self.num_bytes = num_bytes

    def drop(self) -> None:
        """Its bytes are let go, and who reads it is told so."""
        self.close()
        self._is_dropped = True
        if self._limit is not None and not self._limit.expired():
            end_now(self._limit)

    def close(self) -> None:
        """Its bytes are let go. Idempotent."""
        self._account.give_back(self)
        self.num_bytes = 0

    def _check(self) -> None:
        if self._is_dropped:
            raise SlowRequest(
                "the body stood still, or crept, while others had no room; send it faster"
            )

    def __enter__(self) -> HeldBody:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
