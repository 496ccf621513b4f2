"""Which workers an operator keeps requests from: by id, whichever process has it.

ordered here, or heard from the worker or another router -> kept while the id may come back
the worker ends because it was asked to -> its hold is over, which is an order like any other and
    kept for OVER_S: a router that has missed the goodbye hears of that, and not the worker's
    successor of the hold

Routers tell each other how long a hold has been over, and hear of none whose time is nearly up: it
would go from one to the other for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.membership.hold import NO_HOLD, HoldKind, WorkerHold

MAX_HOLDS = 4096
"""Ids that orders are kept of, four times as many as a router has workers; those that are over go
first, then the oldest, and these for an order that is given here alone: where what is heard made
way for itself, two full routers would pass each other's through for ever."""
OVER_S = 86_400.0
"""Longer than a router is away from a fleet that it belongs to."""
HEARD_S = OVER_S - 3600.0
"""A hold that has been over for longer is not heard of any more: in an hour every router that
heard in time has dropped it, however late each heard."""
LOOK_EVERY_S = 60.0
"""For what has been over for OVER_S."""


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
        self._over: dict[str, None] = {}
        self._looked_s = clock()

    def of(self, worker_id: str) -> WorkerHold:
        """The newest that is known."""
        kept = self._kept.get(worker_id)
        return NO_HOLD if kept is None else kept.hold

    @property
    def known(self) -> dict[str, WorkerHold]:
        """All, with those that are over: for other routers."""
        self._drop_old()
        return {worker_id: kept.hold for worker_id, kept in self._kept.items()}

    def over_s(self, worker_id: str) -> float:
        """For how long its hold has been over; 0 for one that is on, and where none is known."""
        if worker_id not in self._over:
            return 0.0
        return max(0.0, self._clock() - self._kept[worker_id].since_s)

    def order(self, worker_id: str, kind: HoldKind) -> None:
        """By an operator. Nothing happens where it is so already."""
        known = self.of(worker_id)
        if kind is not known.kind:
            if worker_id not in self._kept:
                self._make_way(next(iter(self._kept), None))
            self._take(worker_id, known.then(kind))

    def hear(self, worker_id: str, told: WorkerHold, over_s: float = 0.0) -> None:
        """What the worker knows, or another router, to which it has been over for so long."""
        if not told.is_newer_than(self.of(worker_id)):
            return
        if not told.is_on and not over_s <= HEARD_S:
            return
        if worker_id in self._kept or len(self._kept) < MAX_HOLDS:
            self._take(worker_id, told, over_s)
        elif told.is_on and self._over:
            self._make_way(None)
            self._take(worker_id, told)

    def forget(self, worker_id: str) -> None:
        """It has ended for good."""
        self.order(worker_id, HoldKind.NONE)

    def _take(self, worker_id: str, hold: WorkerHold, over_s: float = 0.0) -> None:
        self._drop(worker_id)
        self._kept[worker_id] = _Kept(hold, self._clock() - over_s)
        if not hold.is_on:
            self._over[worker_id] = None
        self._drop_old()
        self._on_change(worker_id, hold)

    def _make_way(self, oldest: str | None) -> None:
        """For one more, where there are too many. `oldest`: goes where none is over."""
        if len(self._kept) >= MAX_HOLDS and (goes := next(iter(self._over), oldest)) is not None:
            self._drop(goes)

    def _drop_old(self) -> None:
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            for each in [e for e in self._over if now_s - self._kept[e].since_s > OVER_S]:
                self._drop(each)

    def _drop(self, worker_id: str) -> None:
        self._kept.pop(worker_id, None)
        self._over.pop(worker_id, None)
