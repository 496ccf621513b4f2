"""Tasks that wait for a text worker: the one that is due first is done first.

    add -> first             given to a worker
        -> leave             its caller is gone: it no longer counts
        -> refused           too much waits, and it was due last

A task is due so much later than it came as it is large. So a short one goes before the long ones
that came in the last half minute, and none waits for what came after its own due time: nobody
starves, and no crowd of long ones holds up the short (engine/step/planning/urgency.py has the same
order).
"""

from __future__ import annotations

import asyncio
import time
from bisect import insort
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.errors import QueueFull, SplitserveError
from router.front.text_work import ReadBody

MAX_WAITING = 256
MAX_WAITING_BYTES = 128 * 1024 * 1024
AGEING_BYTES_PER_S = 1024
"""A chat of 32 kB, the largest, is due after half a minute: 255 of the slowest of them take 28 s
on the 2-core machine, and a short chat still goes before all of them."""


@dataclass(slots=True, eq=False)
class Job:
    """A packed task, and who waits for what becomes of it."""

    head: bytes
    body: bytes
    size_bytes: int
    """What is to be worked on; not what travels."""
    done: asyncio.Future[ReadBody]
    due_s: float = 0.0

    @property
    def is_wanted(self) -> bool:
        """Its caller is still there."""
        return not self.done.done()

    def fail(self, error: SplitserveError) -> None:
        """Tells the caller, if there is one."""
        if self.is_wanted:
            self.done.set_exception(error)


class WaitingTasks:
    """Of one lane. Its life is drawn above; all calls from one thread."""

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._jobs: list[Job] = []
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Tells whoever is due last that there is no room, when there is none. Raises QueueFull
        when that is the newcomer."""
        job.due_s = self._clock() + job.size_bytes / AGEING_BYTES_PER_S
        insort(self._jobs, job, key=_due)  # behind those that are due at the same moment
        self._num_bytes += len(job.body)
        while len(self._jobs) > MAX_WAITING or self._num_bytes > MAX_WAITING_BYTES:
            last = self._jobs[-1]
            self.leave(last)
            full = QueueFull("too many large requests at once; try again later")
            if last is job:
                raise full
            last.fail(full)

    def first(self) -> Job | None:
        """Takes out the one that is due first; None when nobody waits."""
        if not self._jobs:
            return None
        job = self._jobs[0]
        self.leave(job)
        return job

    def leave(self, job: Job) -> None:
        """Idempotent."""
        if job in self._jobs:
            self._jobs.remove(job)
            self._num_bytes -= len(job.body)


def _due(job: Job) -> float:
    return job.due_s
