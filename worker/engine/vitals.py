"""When an engine process has to be ended because it does not work any more.

    STARTING --a message at least every start_timeout_s--> SERVING
    SERVING   a message or a sign of work every engine_silence_s: else it stands still
              a message every step_timeout_s: else its step never ends

An engine of several ranks may wait for another one in its step: AwaitsRanks says that this one
lives, and is a sign of work.

The engine's loop sends a Beat between steps. During a long step there is none, but the kernel sees
work (signs_of_life.py): so a slow step, on busy cores or a machine that swaps, is told from a
stopped or deadlocked process.
"""

from __future__ import annotations

import time

from cluster.deadline import Clock
from cluster.engine_options import EngineOptions
from cluster.process.own_lateness import SeenTime
from cluster.process.silence import Silence
from cluster.process.work_seen import Look, WorkSeen
from engine.contract.messages import AwaitsRanks, EngineMessage, LoadProgress, Ready

LONG_STEP_S = 0.6
"""Without a word: between steps the loop beats every half second."""
LOOK_INTERVAL_S = 0.2
"""At most: so much later a long step is seen, and said. Whoever waits for a word of this engine has
to be more patient than both together (LEAST_PATIENCE_S)."""


class Vitals:
    """One engine's signs of life; `tick` is called every `interval_s`."""

    def __init__(
        self,
        limits: EngineOptions,
        look: Look,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        """`look`: at the process."""
        self._start = Silence(limits.start_timeout_s, clock=clock)
        self._words = SeenTime(clock, 2 * LOOK_INTERVAL_S)
        self._step = Silence(limits.step_timeout_s, clock=clock)
        self._standstill = Silence(limits.engine_silence_s, clock=clock)
        self._work = WorkSeen(look)
        self._was_heard = self._awaits_ranks = False
        self.is_in_long_step = False
        """It works, and has said nothing for longer than between two beats."""
        self._phase = "the process starts"
        self._is_serving = False
        watches = (self._start, self._step, self._standstill)
        self.interval_s = min(LOOK_INTERVAL_S, *(watch.interval_s for watch in watches))

    def heard(self, message: EngineMessage) -> None:
        """Whatever the engine says is a sign of life; that it waits for a rank, one of work."""
        if isinstance(message, AwaitsRanks):
            self._awaits_ranks = True
            return
        for watch in (self._start, self._step, self._standstill):
            watch.heard()
        self._words.renew()
        self._was_heard = True
        if isinstance(message, LoadProgress):
            self._phase = message.phase
        self._is_serving = self._is_serving or isinstance(message, Ready)

    def tick(self) -> str | None:
        """Why the process has to be ended; None while it lives."""
        is_working = self._is_working()
        self.is_in_long_step = self._words.look() > LONG_STEP_S and is_working
        is_late = {watch: watch.tick() for watch in (self._start, self._step, self._standstill)}
        if not self._is_serving:
            limit_s = self._start.limit_s
            why = f"made no progress for {limit_s:g} s while it was at: {self._phase}"
            return f"{why} (--start-timeout-s)" if is_late[self._start] else None
        if is_late[self._standstill]:
            return f"stood still for {self._standstill.limit_s:g} s (--engine-silence-s)"
        if is_late[self._step]:
            return f"did not end a step in {self._step.limit_s:g} s (--step-timeout-s)"
        return None

    def _is_working(self) -> bool:
        """Looks, unless there was a word since the last time: that is sign enough. A kernel that
        does not tell leaves the judgement to the longer limit."""
        if self._was_heard:
            self._was_heard = False
            self._work.forget()
            return False
        seen = self._work.look()
        is_working, self._awaits_ranks = bool(seen) or self._awaits_ranks, False
        if seen is None or is_working:
            self._standstill.heard()
        return is_working
