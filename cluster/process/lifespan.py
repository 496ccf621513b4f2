"""The life of a process that serves, and the count of what it still has to finish.

    STARTING -> READY -> DRAINING -> STOPPED        READY may also go to STOPPED at once
    STARTING -> SPARE -> READY                      a worker without a place in its fleet

Work is admitted in READY only. `admit` gives a lease; a drain is over when no lease is left.
"""

from __future__ import annotations

import asyncio
import enum
import time
from types import TracebackType

from cluster.deadline import Clock
from cluster.errors import Draining, NotReady


class ProcessState(enum.StrEnum):
    """Where a process is in its life."""

    STARTING = "starting"
    SPARE = "spare"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


_NEXT = {
    ProcessState.STARTING: {ProcessState.SPARE, ProcessState.READY, ProcessState.STOPPED},
    ProcessState.SPARE: {ProcessState.READY, ProcessState.DRAINING, ProcessState.STOPPED},
    ProcessState.READY: {ProcessState.DRAINING, ProcessState.STOPPED},
    ProcessState.DRAINING: {ProcessState.STOPPED},
    ProcessState.STOPPED: set[ProcessState](),
}


class WorkLease:
    """One admitted request; released once, by whoever finishes it. Also a context manager."""

    __slots__ = ("_lifespan",)

    def __init__(self, lifespan: Lifespan) -> None:
        self._lifespan: Lifespan | None = lifespan

    def release(self) -> None:
        """Idempotent."""
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            lifespan._finish_one()

    def __enter__(self) -> WorkLease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Lifespan:
    """The state of one process. Every call comes from the event loop's thread."""

    def __init__(self, owner: str = "worker", *, clock: Clock = time.monotonic) -> None:
        """`owner` is what an error calls the process."""
        self._clock = clock
        self._owner = owner
        self._state = ProcessState.STARTING
        self._started_s = clock()
        self._num_admitted = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    def opened(cls, owner: str, clock: Clock = time.monotonic) -> Lifespan:
        """One that takes work from the beginning."""
        lifespan = cls(owner, clock=clock)
        lifespan.advance(ProcessState.READY)
        return lifespan

    @property
    def state(self) -> ProcessState:
        """Where the process is in its life."""
        return self._state

    @property
    def is_draining(self) -> bool:
        """True once no new work is wanted."""
        return self._state in (ProcessState.DRAINING, ProcessState.STOPPED)

    @property
    def num_admitted(self) -> int:
        """Requests that were admitted and are not finished."""
        return self._num_admitted

    @property
    def uptime_s(self) -> float:
        """Seconds since the process began."""
        return self._clock() - self._started_s

    def advance(self, state: ProcessState) -> bool:
        """Moves on; False, and no change, where the table above does not allow it."""
        if state not in _NEXT[self._state]:
            return False
        self._state = state
        return True

    def admit(self) -> WorkLease:
        """A lease for one more request. Raises Draining, or NotReady before the start is over."""
        if self.is_draining:
            raise Draining(
                f"this {self._owner} is {self._state} and takes no new requests; use another one"
            )
        if self._state is ProcessState.STARTING:
            raise NotReady(f"this {self._owner} is still loading")
        if self._state is ProcessState.SPARE:
            raise NotReady(f"this {self._owner} is a spare one, without a place in its fleet")
        self._num_admitted += 1
        self._idle.clear()
        return WorkLease(self)

    async def wait_idle(self, timeout_s: float | None) -> bool:
        """Waits until no lease is left; False when `timeout_s` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _finish_one(self) -> None:
        self._num_admitted -= 1
        if self._num_admitted == 0:
            self._idle.set()
