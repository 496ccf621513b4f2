"""Answers of decode workers that are asked to stop: they go on elsewhere, a few at a time.

    begun -> stays with its worker ... -> over
               |        '- which begins to drain, and another is well -> moves -> goes on
               '- which drains already: the same

A worker that drains still serves those whose turn has not come, so that each pauses for no longer
than its own prompt takes elsewhere. Nobody leaves it for a worker that may fail, or has less room,
nor ahead of what its client has read. Who is left at the worker's deadline is cut off, and goes on
by the way of those whose worker dies. A prompt that is still computed is let be until it has a
token.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Protocol

from cluster.identity import WorkerKey
from router.fleet.fleet import Fleet

MAX_MOVING = 4
"""Answers of one worker that move at once: their prompts are computed side by side elsewhere."""
LOOK_INTERVAL_S = 0.1
"""While answers stay that could not move: their clients read, and other workers get well."""


class Evacuee(Protocol):
    """An answer that could go on with another worker."""

    @property
    def request_id(self) -> str:
        """Unique."""

    @property
    def worker(self) -> WorkerKey | None:
        """The decode worker that has it."""

    def may_move(self) -> bool:
        """True when a healthy worker with as much room is there, and its client has read what
        has come: it would go on at once."""

    def move(self) -> None:
        """It leaves its worker, and goes on elsewhere."""


class Evacuation:
    """One per router. All calls from the event loop."""

    def __init__(self, fleet: Fleet, *, is_on: bool) -> None:
        self._fleet = fleet
        self._is_on = is_on
        self._staying: dict[WorkerKey, dict[str, Evacuee]] = {}
        """By their workers; those of one that have begun, in that order."""
        self._moving: dict[str, WorkerKey] = {}
        """And have no token yet of another worker than this."""
        self._next_look: asyncio.TimerHandle | None = None
        fleet.changes.watch(self._look)

    @property
    def num_staying(self) -> int:
        """Answers that have begun, and are with their workers."""
        return sum(len(answers) for answers in self._staying.values())

    def stays(self, answer: Evacuee) -> None:
        """Its client has the first tokens of its worker, which may have begun to drain."""
        if answer.worker is not None:
            self._staying.setdefault(answer.worker, {})[answer.request_id] = answer
            self._look_at(answer.worker)

    def has_arrived(self, answer: Evacuee) -> None:
        """Tokens of its worker have come, read or not: one that it may have left is left."""
        if (left := self._moving.pop(answer.request_id, None)) is not None:
            self._look_at(left)

    def has_left(self, answer: Evacuee) -> None:
        """Its worker has it no more; idempotent."""
        if answer.worker is not None and (answers := self._staying.get(answer.worker)):
            answers.pop(answer.request_id, None)
            if not answers:
                del self._staying[answer.worker]

    def forget(self, answer: Evacuee) -> None:
        """It is over; idempotent."""
        self.has_left(answer)
        self.has_arrived(answer)

    def _look(self) -> None:
        for worker in list(self._staying):
            self._look_at(worker)

    def _look_at(self, worker: WorkerKey) -> None:
        item = self._fleet.find(worker)
        if self._is_on and item is not None and item.is_left:
            self._let_go(worker)

    def _let_go(self, worker: WorkerKey) -> None:
        """As many as may move at once; whoever cannot yet is looked at again."""
        num_free = MAX_MOVING - sum(left == worker for left in self._moving.values())
        if num_free and self._fleet.well(without=frozenset({worker})):
            staying = list(self._staying.get(worker, {}).values())
            for answer in islice((one for one in staying if one.may_move()), num_free):
                self.has_left(answer)
                self._moving[answer.request_id] = worker
                answer.move()
        if worker in self._staying and self._next_look is None:
            loop = asyncio.get_running_loop()
            self._next_look = loop.call_later(LOOK_INTERVAL_S, self._look_again)

    def _look_again(self) -> None:
        self._next_look = None
        self._look()
