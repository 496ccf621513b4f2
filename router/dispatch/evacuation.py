"""Answers of decode workers that are asked to stop: they go on elsewhere, a few at a time.

    begun -> stays with its worker ... -> over
               |        '- which begins to drain, and another one is there -> moves -> goes on
               '- which drains already: the same

A worker that drains still serves those whose turn has not come, so that each pauses for no longer
than its own prompt takes elsewhere. Who is left at the worker's deadline is cut off, and goes on by
the way of those whose worker dies. A prompt that is still computed is let be until it has a token.
"""

from __future__ import annotations

from typing import Protocol

from cluster.identity import WorkerKey
from router.fleet.fleet import Fleet

MAX_MOVING = 4
"""Answers of one worker that move at once: their prompts are computed side by side elsewhere."""


class Evacuee(Protocol):
    """An answer that could go on with another worker."""

    @property
    def request_id(self) -> str:
        """Unique."""

    @property
    def worker(self) -> WorkerKey | None:
        """The decode worker that has it."""

    def may_move(self) -> bool:
        """True when another one would take it now."""

    def move(self) -> None:
        """It leaves its worker, and goes on elsewhere once what has arrived is read."""


class Evacuation:
    """One per router. All calls from the event loop."""

    def __init__(self, fleet: Fleet, *, is_on: bool) -> None:
        self._fleet = fleet
        self._is_on = is_on
        self._staying: dict[str, Evacuee] = {}
        """Those that have begun, in that order."""
        self._moving: dict[str, WorkerKey] = {}
        """And have no token yet of another worker than this."""
        fleet.changes.watch(self._look)

    def look_at(self, answer: Evacuee) -> None:
        """It has its first tokens of its worker: one that it may have left is left."""
        self._moving.pop(answer.request_id, None)
        self._staying[answer.request_id] = answer
        self._look()

    def forget(self, answer: Evacuee) -> None:
        """It is over; idempotent."""
        self._staying.pop(answer.request_id, None)
        if self._moving.pop(answer.request_id, None) is not None:
            self._look()

    def _look(self) -> None:
        if self._is_on and (stopping := self._stopping()):
            for answer in list(self._staying.values()):
                worker = answer.worker
                if worker is not None and worker in stopping:
                    self._move_in_turn(answer, worker)

    def _move_in_turn(self, answer: Evacuee, worker: WorkerKey) -> None:
        num_moving = sum(left == worker for left in self._moving.values())
        if num_moving < MAX_MOVING and answer.may_move():
            del self._staying[answer.request_id]
            self._moving[answer.request_id] = worker
            answer.move()

    def _stopping(self) -> set[WorkerKey]:
        return {item.key for item in self._fleet.members if item.is_decode and item.state.draining}
