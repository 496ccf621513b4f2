"""Time, as far as we ourselves were there: while our own loop stood, nobody was silent.

SeenTime      for who waits for a sign: counts from look to look, a long gap as a short one
LateTurn      for who judges by moments: a turn that comes late spares everybody, once, so that
              what has arrived meanwhile is read first
SeenTimeout   for who waits for one answer, in place of asyncio.timeout: both of these
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from cluster.deadline import Clock, end_now

LATE_S = 0.05
"""A turn that comes so late says that the loop stood."""
LONGEST_LOOK_S = 1.0
LOOKS_PER_LIMIT = 8


class SeenTime:
    """Seconds since the last sign. One thread's."""

    def __init__(self, clock: Clock, longest_look_s: float = LONGEST_LOOK_S) -> None:
        """Of the time between two looks at most `longest_look_s` counts: who was stopped, or
        starved of its processor, has not waited for anybody meanwhile."""
        self._clock = clock
        self._longest_look_s = longest_look_s
        self._waited_s = 0.0
        self._looked_s = clock()

    def renew(self) -> None:
        """A sign: counting begins anew."""
        self._waited_s = 0.0
        self._looked_s = self._clock()

    def look(self) -> float:
        """Seconds without a sign; to be called more often than every `longest_look_s`."""
        self._waited_s += self.since_last_look()
        return self._waited_s

    def since_last_look(self) -> float:
        """What counts of the time since then, for who adds it up elsewhere; this is a look, too."""
        now_s = self._clock()
        passed_s = min(now_s - self._looked_s, self._longest_look_s)
        self._looked_s = now_s
        return passed_s


class LateTurn:
    """The turns of one judge: `due_in` before each, then what it wants to know of it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_s = clock()
        self._has_spared = False

    def due_in(self, seconds: float) -> None:
        """The next turn should come then."""
        self._due_s = self._clock() + seconds

    @property
    def late_s(self) -> float:
        """How late this one is."""
        return max(0.0, self._clock() - self._due_s)

    @property
    def is_late(self) -> bool:
        """True when the loop has stood: what has arrived may not be read yet."""
        return self.late_s > LATE_S

    def spares(self) -> bool:
        """True when nobody is to be judged now. Never twice running: a loop that is always late
        has to judge, too."""
        self._has_spared = self.is_late and not self._has_spared
        return self._has_spared

    def needs_none(self) -> None:
        """Nobody stood to be judged in this turn: the next late one spares again."""
        self._has_spared = False


class SeenTimeout:
    """`async with SeenTimeout(limit_s, clock):` raises TimeoutError once its block has waited for
    `limit_s` of time in which the loop turned. Used once."""

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self._limit_s = limit_s
        self._interval_s = min(limit_s / LOOKS_PER_LIMIT, LONGEST_LOOK_S / 2)
        self._time = SeenTime(clock, 2 * self._interval_s)
        self._turn = LateTurn(clock)
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._time.renew()
        self._arm()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _arm(self) -> None:
        self._turn.due_in(self._interval_s)
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._look)

    def _look(self) -> None:
        if self._time.look() < self._limit_s or self._turn.spares():
            self._arm()
        else:
            end_now(self._timeout)
