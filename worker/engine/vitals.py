"""When an engine process has to be ended because it does not work any more.

    STARTING --a message at least every start_timeout_s--> SERVING
    SERVING   a message or processor time every engine_silence_s: else it stands still
              a message every step_timeout_s: else its step never ends

The engine's loop sends a Beat between steps. During a long step there is none, but processor time
is used: so a slow step is told from a stopped or deadlocked process.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.config import EngineOptions
from cluster.deadline import Clock
from cluster.process.silence import Silence
from engine.contract.messages import EngineMessage, LoadProgress, Ready

TICKS_TO_BE_WORK = 1
"""Of processor time between two looks: a process that stands still uses none at all."""


LONG_STEP_S = 1.0
"""Without a word: between steps the loop beats every half second."""


class Vitals:
    """One engine's signs of life; `tick` is called every `interval_s`."""

    def __init__(
        self,
        limits: EngineOptions,
        cpu_ticks: Callable[[], int | None],
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._start = Silence(limits.start_timeout_s, clock=clock)
        self._words = Silence(LONG_STEP_S, clock=clock)
        self._step = Silence(limits.step_timeout_s, clock=clock)
        self._standstill = Silence(limits.engine_silence_s, clock=clock)
        self._cpu_ticks = cpu_ticks
        self._seen_ticks: int | None = None
        self.is_working = False
        """It has used its processor since the look before the last one."""
        self.is_in_long_step = False
        """It has used its processor, and said nothing for longer than between two beats."""
        self._phase = "the process starts"
        self._is_serving = False
        watches = (self._start, self._step, self._standstill)
        self.interval_s = min(watch.interval_s for watch in watches)

    def heard(self, message: EngineMessage) -> None:
        """Whatever the engine says is a sign of life."""
        for watch in (self._start, self._step, self._standstill, self._words):
            watch.heard()
        if isinstance(message, LoadProgress):
            self._phase = message.phase
        self._is_serving = self._is_serving or isinstance(message, Ready)

    def tick(self) -> str | None:
        """Why the process has to be ended; None while it lives."""
        self._look_at_the_processor()
        self.is_in_long_step = self._words.tick() and self.is_working
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

    def _look_at_the_processor(self) -> None:
        """A kernel that does not tell leaves the judgement to the longer limit."""
        seen, now = self._seen_ticks, self._cpu_ticks()
        self.is_working = seen is not None and now is not None and now - seen >= TICKS_TO_BE_WORK
        if now is None or self.is_working:
            self._standstill.heard()
        if now is not None:
            self._seen_ticks = now
