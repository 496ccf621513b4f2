"""Who has been silent for too long, judged by a clock that stands while this process stands.

each turn comes in time   -> those whose lease has run out are removed
a turn comes late         -> the clock is set back by as much, and nobody is judged: first the
                             loop reads the beats that have arrived; the next turn judges again
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from cluster.deadline import Clock, Sleep
from cluster.membership.store import Lives, MembershipStore
from cluster.process.own_lateness import LateTurn

TURN_S = 0.1
"""Our own lateness is known to this much: a small part of any lease."""


class AwakeClock:
    """Seconds during which this process's loop has run: the clock of leases and beats."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._overslept_s = 0.0

    def __call__(self) -> float:
        """From an arbitrary start. Goes back when lateness becomes known."""
        return self._clock() - self._overslept_s

    def overslept(self, seconds: float) -> None:
        """The loop stood for so long: nobody was silent meanwhile, we were deaf."""
        self._overslept_s += seconds


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a worker is taken to live after its last sign of life, and by which clock."""

    length_s: float
    clock: Clock

    def has_run_out(self, since_s: float) -> bool:
        """True when that sign of life, on `clock`, is too long ago."""
        return self.clock() - since_s > self.length_s


class Expiry:
    """Runs the leases of one store, whose clock is `awake`. `lives`: see `MembershipStore`."""

    def __init__(
        self,
        store: MembershipStore,
        awake: AwakeClock,
        lives: Lives,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._store = store
        self._awake = awake
        self._lives = lives
        self._sleep = sleep
        self._turn = LateTurn(clock)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.turn()

    async def turn(self) -> None:
        """Waits, sees how late it is, and judges unless it is late for the first time."""
        self._turn.due_in(TURN_S)
        await self._sleep(TURN_S)
        self._awake.overslept(self._turn.late_s)
        if not self._turn.spares():
            await self._store.expire(self._lives)
