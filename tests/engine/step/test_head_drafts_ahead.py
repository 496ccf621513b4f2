"""A head on a device whose steps may run ahead: they follow each other, and it reads each."""

from __future__ import annotations

import pytest

from engine.runner.model_runner import LaunchingRunner
from tests.engine.runner.lazy_runner import lazy_replica
from tests.engine.step.engine_scenario import expected_tokens, request
from tests.engine.step.head_guessing import head_engine, with_head
from tests.engine.step.test_speculation import answers


@pytest.mark.parametrize("every", [0, 4])
def test_no_step_is_launched_before_the_last_one_s_states_are_read(every: int) -> None:
    target, _ = lazy_replica(256)
    replica = with_head(target, every=every, runs_ahead=True)
    assert isinstance(replica.runner, LaunchingRunner)
    engine = head_engine(replica, max_batch_tokens=64)
    assert engine._launches is None
    bodies = [request(str(i), [i % 5, 1, 2], max_tokens=12 + 3 * i, seed=i) for i in range(4)]
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
