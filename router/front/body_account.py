"""The bytes of large bodies that a router holds at once, before it knows what they ask for.

    open -> arriving: grow_to* -> arrived -> closed     a body comes, is read by a text worker, goes
                  '--> dropped: it stood still while others had no room

Small bodies do not count: their number is bounded with the connections, and no crowd of large ones
keeps them out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from cluster.deadline import Clock
from cluster.errors import NotReady, SlowRequest
from router.front.text_work import LARGE_BODY_BYTES

STANDSTILL_S = 0.5
"""Without PROGRESS_BYTES more, before a body may be dropped for another one's sake."""
PROGRESS_BYTES = 16 * 1024


class BodyAccount:
    """One per process, for HTTP and gRPC. All calls from the event loop's thread."""

    def __init__(self, max_bytes: int, *, clock: Clock = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._arriving: dict[HeldBody, None] = {}
        self.num_bytes = 0
        """Held now."""

    def open(self) -> HeldBody:
        """For one body; close it by leaving its `with`."""
        return HeldBody(self, self._clock)

    def take(self, taker: HeldBody, num_bytes: int) -> None:
        """Bodies that stand still are dropped for it, the longest first. Raises NotReady, and takes
        nothing, when there is no room all the same."""
        while self.num_bytes + num_bytes > self._max_bytes:
            still = [body for body in self._arriving if body is not taker and body.num_bytes]
            slowest = min(still, key=lambda body: body.moved_s, default=None)
            if slowest is None or self._clock() - slowest.moved_s < STANDSTILL_S:
                raise NotReady(
                    f"bodies of {self._max_bytes} bytes are being received; try again later"
                )
            slowest.drop()
        self.num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """What `take` took."""
        self.num_bytes -= num_bytes

    @contextmanager
    def arriving(self, body: HeldBody) -> Iterator[None]:
        """Until the block ends, the body may be dropped."""
        self._arriving[body] = None
        try:
            yield
        finally:
            del self._arriving[body]


class HeldBody:
    """One body's part of the account."""

    def __init__(self, account: BodyAccount, clock: Clock) -> None:
        self._account = account
        self._clock = clock
        self._moved_bytes = 0
        self._limit: asyncio.Timeout | None = None
        self._is_dropped = False
        self.num_bytes = 0
        self.moved_s = clock()
        """When it last had PROGRESS_BYTES more than before."""

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
        if num_bytes >= self._moved_bytes + PROGRESS_BYTES:
            self._moved_bytes, self.moved_s = num_bytes, self._clock()
        if num_bytes > LARGE_BODY_BYTES:
            self._account.take(self, num_bytes - self.num_bytes)
            self.num_bytes = num_bytes

    def drop(self) -> None:
        """Its bytes are let go, and who reads it is told so."""
        self.close()
        self._is_dropped = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        """Its bytes are let go. Idempotent."""
        self._account.give_back(self.num_bytes)
        self.num_bytes = 0

    def _check(self) -> None:
        if self._is_dropped:
            raise SlowRequest("the body stood still while others had no room; send it faster")

    def __enter__(self) -> HeldBody:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
