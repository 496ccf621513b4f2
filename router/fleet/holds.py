"""Which workers an operator keeps requests from: by id, whichever process has it.

ordered here, or heard from a worker that another router has told -> kept while the id may come back
the worker ends because it was asked to -> forgotten
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.membership.hold import NO_HOLD, HoldKind, WorkerHold

MAX_HOLDS = 4096
"""Ids that orders are kept of, four times as many as a router has workers; the oldest go first."""


class Holds:
    """Of one router. `on_change` hears the id after its hold has changed. From the loop only."""

    def __init__(self, on_change: Callable[[str, WorkerHold], None]) -> None:
        self._on_change = on_change
        self._holds: dict[str, WorkerHold] = {}

    def of(self, worker_id: str) -> WorkerHold:
        """The newest that is known."""
        return self._holds.get(worker_id, NO_HOLD)

    def order(self, worker_id: str, kind: HoldKind) -> None:
        """By an operator. Nothing happens where it is so already."""
        known = self.of(worker_id)
        if kind is not known.kind:
            self._take(worker_id, known.then(kind))

    def hear(self, worker_id: str, told: WorkerHold) -> None:
        """What the worker knows."""
        if told.is_newer_than(self.of(worker_id)):
            self._take(worker_id, told)

    def forget(self, worker_id: str) -> None:
        """It has ended for good."""
        self._holds.pop(worker_id, None)

    def _take(self, worker_id: str, hold: WorkerHold) -> None:
        self._holds.pop(worker_id, None)
        self._holds[worker_id] = hold
        if len(self._holds) > MAX_HOLDS:
            del self._holds[next(iter(self._holds))]
        self._on_change(worker_id, hold)
