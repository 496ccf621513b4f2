"""Tasks that wait for a text worker: callers' addresses take turns, and within one the task that is
due first is done first.

    add -> first -> took     given to a worker; what it turned out to be
        -> leave             its caller is gone: it no longer counts
        -> refused           too much waits, and its caller has the most of it

A task is due so much later than it came as it is large. So a short one goes before the long ones
that came in the last half minute, and none waits for what came after its own due time: nobody
starves, and no crowd of long ones holds up the short (engine/step/planning/urgency.py has the same
order).

Between addresses it is the same on a clock of their own, by which what an address was given last is
done only when it was due: the next of it begins to age then (start-time fair queueing, Goyal, Vin
and Chen, 1996). That clock jumps to whatever is taken up, so that who was alone pays nothing later,
and it never stands. So 33 kB of one address, again and again, hold up 300 kB of another by ten.
"""

from __future__ import annotations

import asyncio
import time
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field

from cluster.deadline import Clock
from cluster.errors import QueueFull, SplitserveError
from router.front.caller import NOBODY, Caller
from router.front.text_work import ReadBody

MAX_WAITING = 256
MAX_WAITING_BYTES = 128 * 1024 * 1024
AGEING_BYTES_PER_S = 1024
"""A chat of 32 kB, the largest, is due after half a minute: 255 of the slowest of them take 28 s
on the 2-core machine, and a short chat still goes before all of them."""
MANY_ADDRESSES = 1024
"""Remembered; more are looked through for those whose last task was long due."""


@dataclass(slots=True, eq=False)
class Job:
    """A packed task, and who waits for what becomes of it."""

    head: bytes
    body: bytes
    size_bytes: int
    """What is to be worked on; not what travels."""
    done: asyncio.Future[ReadBody]
    caller: Caller = NOBODY
    repeated_bytes: int = 0
    """That may be made of it beside what came for it, at most."""
    came_s: float = 0.0
    """On the clock of the addresses."""
    due_s: float = 0.0
    """Among those of its address."""

    @property
    def is_wanted(self) -> bool:
        """Its caller is still there."""
        return not self.done.done()

    @property
    def ageing_s(self) -> float:
        """From its coming until it is due."""
        return self.size_bytes / AGEING_BYTES_PER_S

    def fail(self, error: SplitserveError) -> None:
        """Tells the caller, if there is one."""
        if self.is_wanted:
            self.done.set_exception(error)


@dataclass(slots=True)
class _Line:
    """Of one address: at least one, due first to last."""

    jobs: list[Job] = field(default_factory=list)
    num_bytes: int = 0


class WaitingTasks:
    """Of one lane. Its life is drawn above; all calls from one thread."""

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._ahead_s = 0.0
        self._lines: dict[str, _Line] = {}
        self._served_until_s: dict[str, float] = {}
        """When the last task that an address was given is due, on the clock of the addresses."""
        self._num = 0
        self._num_bytes = 0

    def __len__(self) -> int:
        return self._num

    def add(self, job: Job) -> None:
        """Tells whoever is due last of the caller with the most that there is no room, when there
        is none. Raises QueueFull when that is the newcomer."""
        job.came_s = self._now_s()
        job.due_s = self._clock() + job.ageing_s
        line = self._lines.setdefault(job.caller.address, _Line())
        insort(line.jobs, job, key=_due)  # behind those that are due at the same moment
        self._count(line, 1, len(job.body))
        while self._num > MAX_WAITING or self._num_bytes > MAX_WAITING_BYTES:
            last = self._last()
            self.leave(last)
            full = QueueFull("too many large requests at once; try again later")
            if last is job:
                raise full
            last.fail(full)

    def first(self) -> Job | None:
        """Takes out the one whose turn it is; None when nobody waits."""
        if not self._lines:
            return None
        job = min((line.jobs[0] for line in self._lines.values()), key=self._due_among_addresses)
        start_s = self._start_s(job)
        self._ahead_s += max(0.0, start_s - self._now_s())
        self._served_until_s[job.caller.address] = start_s + job.ageing_s
        self.leave(job)
        if len(self._served_until_s) > MANY_ADDRESSES:
            self._forget_the_even()
        return job

    def took(self, job: Job, num_bytes: int) -> None:
        """It was so much work, as is known now that it has ended, well or not: what it was
        more than it was taken for, the next of its address waits longer."""
        more_s = (num_bytes - job.size_bytes) / AGEING_BYTES_PER_S
        address = job.caller.address
        if more_s > 0:
            until_s = max(self._served_until_s.get(address, 0.0), self._now_s())
            self._served_until_s[address] = until_s + more_s

    def leave(self, job: Job) -> None:
        """Idempotent."""
        line = self._lines.get(job.caller.address)
        if line is None or job not in line.jobs:
            return
        line.jobs.remove(job)
        self._count(line, -1, -len(job.body))
        if not line.jobs:
            del self._lines[job.caller.address]

    def _now_s(self) -> float:
        """On the clock of the addresses."""
        return self._clock() + self._ahead_s

    def _start_s(self, job: Job) -> float:
        """When it began to age, on that clock."""
        return max(job.came_s, self._served_until_s.get(job.caller.address, 0.0))

    def _due_among_addresses(self, job: Job) -> float:
        return self._start_s(job) + job.ageing_s

    def _count(self, line: _Line, num: int, num_bytes: int) -> None:
        line.num_bytes += num_bytes
        self._num += num
        self._num_bytes += num_bytes

    def _last(self) -> Job:
        """Due last of the connection with the most, at the address with the most: tasks, or bytes
        where these are too many."""
        if self._num > MAX_WAITING:
            most = max(len(line.jobs) for line in self._lines.values())
            full = [line for line in self._lines.values() if len(line.jobs) == most]
        else:
            full = [max(self._lines.values(), key=lambda line: line.num_bytes)]
        jobs = [job for line in full for job in line.jobs]
        connections = Counter(job.caller.connection for job in jobs)
        return max(reversed(jobs), key=lambda job: (connections[job.caller.connection], job.due_s))

    def _forget_the_even(self) -> None:
        now_s = self._now_s()
        owing = {name: until_s for name, until_s in self._served_until_s.items() if until_s > now_s}
        self._served_until_s = owing


def _due(job: Job) -> float:
    return job.due_s
