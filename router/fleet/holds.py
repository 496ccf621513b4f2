"""Which workers an operator keeps requests from: by id, whichever process has it.

ordered here, or heard from the worker or another router -> kept while the id may come back
the worker ends because it was asked to -> its hold is over, which is an order like any other and
    kept for OVER_S: a router that has missed the goodbye hears of that, and not the worker's
    successor of the hold
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.membership.hold import NO_HOLD, HoldKind, WorkerHold

MAX_HOLDS = 4096
"""Ids that orders are kept of, four times as many as a router has workers; those that are over go
first, then the oldest."""
OVER_S = 86_400.0
"""Longer than a router is away from a fleet that it belongs to."""


@dataclass(frozen=True, slots=True)
class _Kept:
    hold: WorkerHold
    since_s: float


class Holds:
    """Of one router. `on_change` hears the id after its hold has changed. From the loop only."""

    def __init__(
        self, on_change: Callable[[str, WorkerHold], None], clock: Clock = time.monotonic
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def of(self, worker_id: str) -> WorkerHold:
        """The newest that is known."""
        kept = self._kept.get(worker_id)
        return NO_HOLD if kept is None else kept.hold

    @property
    def known(self) -> dict[str, WorkerHold]:
        """All, with those that are over: for other routers."""
        return {worker_id: kept.hold for worker_id, kept in self._kept.items()}

    def order(self, worker_id: str, kind: HoldKind) -> None:
        """By an operator. Nothing happens where it is so already."""
        known = self.of(worker_id)
        if kind is not known.kind:
            self._take(worker_id, known.then(kind))

    def hear(self, worker_id: str, told: WorkerHold) -> None:
        """What the worker knows, or another router."""
        if told.is_newer_than(self.of(worker_id)):
            self._take(worker_id, told)

    def forget(self, worker_id: str) -> None:
        """It has ended for good."""
        self.order(worker_id, HoldKind.NONE)

    def _take(self, worker_id: str, hold: WorkerHold) -> None:
        now_s = self._clock()
        self._kept.pop(worker_id, None)
        self._kept[worker_id] = _Kept(hold, now_s)
        over = [each for each, kept in self._kept.items() if not kept.hold.is_on]
        for each in over:
            if now_s - self._kept[each].since_s > OVER_S:
                del self._kept[each]
        if len(self._kept) > MAX_HOLDS:
            is_there = (each for each in over if each in self._kept and each != worker_id)
            del self._kept[next(is_there, next(iter(self._kept)))]
        self._on_change(worker_id, hold)
