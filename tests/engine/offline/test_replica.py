"""What a measurement without workers asks of an engine."""

from __future__ import annotations

from engine.contract.commands import Submit
from engine.offline.queue import Completion, collect
from engine.offline.replica import greedy_request
from tests.engine.step.engine_scenario import VirtualClock, small_engine


def test_a_measurement_of_a_week_is_not_cut() -> None:
    clock, completion = VirtualClock(), Completion()
    engine = small_engine(clock=clock)
    engine.apply(Submit(greedy_request("a", [1, 2, 3], 4)))
    while completion.ended is None:
        clock.now_s += 2 * 24 * 3600.0
        collect(engine.step(), {"a": completion})
    assert completion.ended.error_code == ""
    assert len(completion.token_ids()) == 4
