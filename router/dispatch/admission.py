"""The bounded door before dispatch: who runs, who waits, who is told to come back.

    admit: WAITING -> RUNNING (a lease) -> released
              |--> QueueFull          no place, or the wait would outlast the deadline
              |--> DeadlineExceeded   the deadline passed while waiting
              '--> cancelled          the client left

First come, first served inside a tenant; tenants take turns, so that one tenant's burst delays its
own requests first. (Weights per tenant would be a number beside each queue in `_waiting`.)
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from types import TracebackType

from cluster.deadline import Clock, Deadline
from cluster.errors import DeadlineExceeded, QueueFull
from cluster.retry_after import DEFAULT_RETRY_AFTER_S

_HOLD_STEP = 0.1
"""Weight of the newest request in the moving average of how long one holds its place."""


class AdmissionLease:
    """One running request's place; released once, by whoever finishes it."""

    __slots__ = ("_admission", "admitted_s")

    def __init__(self, admission: Admission, admitted_s: float) -> None:
        self._admission: Admission | None = admission
        self.admitted_s = admitted_s

    @property
    def is_held(self) -> bool:
        """False once it was released."""
        return self._admission is not None

    def release(self) -> None:
        """Idempotent."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission._released(self)

    def __enter__(self) -> AdmissionLease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


_Waiter = asyncio.Future[AdmissionLease]


class Admission:
    """Every call comes from the event loop's thread."""

    def __init__(
        self,
        max_running: int,
        max_queued: int,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._max_running = max_running
        self._max_queued = max_queued
        self._clock = clock
        self._num_running = 0
        self._mean_hold_s = 0.0
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()

    @property
    def num_running(self) -> int:
        """Leases that are out."""
        return self._num_running

    @property
    def num_queued(self) -> int:
        """Requests that wait."""
        return sum(len(queue) for queue in self._waiting.values())

    async def admit(self, tenant: str, deadline: Deadline) -> AdmissionLease:
        """Waits for a place until then. Raises QueueFull, DeadlineExceeded."""
        if deadline.has_passed:
            raise DeadlineExceeded("the deadline had passed when the request was queued")
        if self._num_running < self._max_running and not self._waiting:
            return self._grant()
        remaining_s = deadline.remaining_s
        self._refuse_early(remaining_s)
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(waiter)
        try:
            async with deadline.bound():
                return await waiter
        except TimeoutError:
            self._withdraw(tenant, waiter)
            raise DeadlineExceeded(
                f"the deadline passed after {remaining_s:.1f} s in the router's queue; "
                "allow more time, or add workers"
            ) from None
        except asyncio.CancelledError:
            self._withdraw(tenant, waiter)
            raise

    def _refuse_early(self, remaining_s: float) -> None:
        num_queued = self.num_queued
        expected_s = (num_queued + 1) * self._mean_hold_s / self._max_running
        retry_after_s = max(DEFAULT_RETRY_AFTER_S, expected_s)
        if num_queued >= self._max_queued:
            raise QueueFull(
                f"{num_queued} requests wait, which is the limit; try again in "
                f"{retry_after_s:.0f} s, or raise --max-queued-requests",
                retry_after_s=retry_after_s,
            )
        if expected_s > remaining_s:
            raise QueueFull(
                f"the wait is about {expected_s:.1f} s, the request's deadline is in "
                f"{remaining_s:.1f} s; try again later or allow more time",
                retry_after_s=retry_after_s,
            )

    def _grant(self) -> AdmissionLease:
        self._num_running += 1
        return AdmissionLease(self, self._clock())

    def _released(self, lease: AdmissionLease) -> None:
        held_s = self._clock() - lease.admitted_s
        self._mean_hold_s += _HOLD_STEP * (held_s - self._mean_hold_s)
        self._num_running -= 1
        while self._num_running < self._max_running and (waiter := self._next_waiter()):
            waiter.set_result(self._grant())

    def _next_waiter(self) -> _Waiter | None:
        """The first of the tenant whose turn it is; its tenant goes to the end of the line."""
        while self._waiting:
            tenant, queue = self._waiting.popitem(last=False)
            waiter = queue.popleft()
            if queue:
                self._waiting[tenant] = queue
            if not waiter.done():
                return waiter
        return None

    def _withdraw(self, tenant: str, waiter: _Waiter) -> None:
        """Out of the queue; a place that was granted in the same moment goes on to the next."""
        if waiter.done() and not waiter.cancelled():
            waiter.result().release()
        queue = self._waiting.get(tenant)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[tenant]
