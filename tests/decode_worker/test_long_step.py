"""A prefill worker in a long step is waited for, however little patience there is."""

import dataclasses

import pytest

from cluster.engine_options import EngineOptions
from cluster.generation import EngineLoad
from cluster.process.signs_of_life import SignsOfLife
from decode_worker.handoff_plan import LEAST_PATIENCE_S
from decode_worker.source_patience import SourcePatience
from engine.contract.messages import Beat
from prefill_worker.export_stream import ExportStream
from tests.manual_clock import ManualClock
from worker.engine.link import LifeSign
from worker.engine.scripted_link import scripted_ready
from worker.engine.vitals import Vitals

STEP_S = 6.0
TURN_S = 0.01
LATE_S = 0.01
"""What a timer adds to each interval."""


class LongStep:
    """An engine that works in one step for all the time after its last beat; its server, and a
    reader of an export there."""

    def __init__(self, engine_silence_s: float) -> None:
        self.clock = ManualClock()
        limits = dataclasses.replace(EngineOptions(), engine_silence_s=engine_silence_s)
        signs = SignsOfLife(is_stopped=False, is_busy=True, cpu_ticks=0)
        self.vitals = Vitals(limits, lambda: signs, clock=self.clock)
        self.export = ExportStream(first_block=0, num_blocks=4, num_choices=1, clock=self.clock)
        self.patience = SourcePatience(LEAST_PATIENCE_S, clock=self.clock)
        self.vitals.heard(scripted_ready())

    def last_beat(self, *, before_a_look_s: float) -> None:
        """Of the loop, just before the step begins."""
        self.clock.advance(self.vitals.interval_s)
        assert self.vitals.tick() is None
        self.clock.advance(self.vitals.interval_s - before_a_look_s)
        self.vitals.heard(Beat(1))
        self.export.engine_lives(EngineLoad(), LifeSign.WORD)
        self.next_look_s = self.clock() + before_a_look_s
        self.next_tick_s = self.clock() + self.patience.interval_s

    def pass_time(self) -> str | None:
        """Why the reader gives the source up; None when it does not."""
        end_s = self.clock() + STEP_S
        while self.clock() < end_s:
            self.clock.advance(TURN_S)
            self._look()
            if self.clock() >= self.next_tick_s:
                self.next_tick_s = self.clock() + self.patience.interval_s + LATE_S
                if (why := self.patience.tick()) is not None:
                    return why
        return None

    def _look(self) -> None:
        if self.clock() < self.next_look_s:
            return
        self.next_look_s = self.clock() + self.vitals.interval_s + LATE_S
        assert self.vitals.tick() is None
        if self.vitals.is_in_long_step:
            self.export.engine_lives(EngineLoad(), LifeSign.LONG_STEP)
        while not self.export._messages.empty():
            event = self.export._messages.get_nowait()
            assert event is not None
            self.patience.heard(event)


@pytest.mark.parametrize("engine_silence_s", [1.0, 2.0, 4.0, 10.0])
@pytest.mark.parametrize("before_a_look_s", [0.0, 0.05, 0.1, 0.15, 0.19])
def test_a_long_step_is_survived_with_the_least_patience_that_there_is(
    engine_silence_s: float, before_a_look_s: float
) -> None:
    step = LongStep(engine_silence_s)
    step.last_beat(before_a_look_s=min(before_a_look_s, step.vitals.interval_s))
    assert step.pass_time() is None
