"""What it takes for one rank's life, while it starts and while it takes plans."""

from __future__ import annotations

from cluster.deadline import Clock
from cluster.process.silence import Silence
from cluster.process.work_seen import Look, WorkSeen

FROZEN_S = 1.2
"""Noticed within two seconds, with a beat, a look and an idle turn of the engine's loop added; and
before the engine's server, whose limit is two seconds, sees it wait."""
FAR_FROZEN_S = 5.0
"""Of a rank on another host, whose beats alone are seen: TCP sends again after 0.2, 0.6, 1.4 and 3
seconds, and beats that were lost on the way are no death."""
STARTING_SILENCE_S = 30.0
"""Of the thread that beats beside a rank that loads, from the first beat on: what holds the
interpreter's lock, such as a library that is opened, is no death."""


class RankHeart:
    """One rank's beats and work; `stands_still` is asked every LOOK_INTERVAL_S times four."""

    def __init__(self, look: Look, clock: Clock, limit_s: float = FROZEN_S) -> None:
        """`look`: at its process; where nobody sees it, its beats alone count."""
        self._work, self.limit_s = WorkSeen(look), limit_s
        self._silence = Silence(limit_s, clock=clock)
        self._beat_ns: int | None = None

    def stands_still(self, beat_ns: int) -> bool:
        """`beat_ns`: its last one."""
        is_late = self._silence.tick()
        if beat_ns != self._beat_ns:
            self._beat_ns = beat_ns
            self._work.forget()
        elif not self._work.look():
            return is_late
        self._silence.heard()
        return False


class StartingHeart:
    """Of a rank that loads, which takes no plans yet. It may wait long, for a lock or for others,
    and so do nothing; but its process is not stopped, and its thread beats, where it has one."""

    def __init__(self, look: Look, clock: Clock) -> None:
        """As of RankHeart."""
        self._look = look
        self._stopped = Silence(FROZEN_S, clock=clock)
        self._unheard = Silence(STARTING_SILENCE_S, clock=clock)
        self._heard_ns = 0
        self.limit_s = FROZEN_S

    def stands_still(self, heard_ns: int) -> bool:
        """`heard_ns`: when its thread was heard last; 0: never, or it has none."""
        is_stopped, is_unheard = self._stopped.tick(), self._unheard.tick()
        signs = self._look()
        if signs is None or not signs.is_stopped:
            self._stopped.heard()
            is_stopped = False
        if heard_ns == 0 or heard_ns != self._heard_ns:
            self._heard_ns = heard_ns
            self._unheard.heard()
            is_unheard = False
        self.limit_s = FROZEN_S if is_stopped else STARTING_SILENCE_S
        return is_stopped or is_unheard
