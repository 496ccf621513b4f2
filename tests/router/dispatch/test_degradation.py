"""What is given up, in the order that an operator chose."""

from __future__ import annotations

import pytest
from msgspec import structs

from cluster.errors import ConfigError, QueueFull
from router.dispatch.degradation import HOLD_S, Degradation, steps_of
from router.tenants.priority import Priority
from tests.manual_clock import ManualClock
from tests.router.dispatch_bench import request

ALL = "shed=batch@2,max-tokens=256@5,local-prefill=off,refuse"


def test_steps_are_read_with_their_thresholds_or_twice_the_last_one() -> None:
    steps = steps_of(ALL)
    assert ",".join(map(str, steps)) == "shed=batch,max-tokens=256,local-prefill=off,refuse"
    assert [step.threshold_s for step in steps] == [2.0, 5.0, 10.0, 20.0]
    assert [step.threshold_s for step in steps_of("shed=batch, refuse")] == [1.0, 2.0]
    assert steps_of("") == ()


@pytest.mark.parametrize(
    "text", ["shed=nobody", "max-tokens=0", "max-tokens=x", "local-prefill", "shed=batch@x", "x"]
)
def test_what_is_no_step_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match="shed=CLASS"):
        steps_of(text)


def test_a_step_does_not_begin_before_the_one_that_it_follows() -> None:
    with pytest.raises(ConfigError, match="follows"):
        steps_of("refuse@5,shed=batch@2")


def test_steps_begin_one_after_the_other_and_end_when_the_line_has_been_short_for_a_while() -> None:
    clock = ManualClock()
    degradation = Degradation(steps_of(ALL), clock)
    seen = []
    for line_s in (0.0, 1.9, 2.0, 5.0, 4.0, 30.0):
        degradation.look(line_s)
        seen.append(degradation.num_in_force)
    assert seen == [0, 0, 1, 2, 2, 4]
    for _ in range(3):
        clock.advance(HOLD_S - 0.1)
        degradation.look(11.0)
    assert degradation.num_in_force == 4, "it was not short enough"
    for left in (3, 2, 1, 0, 0):
        clock.advance(HOLD_S + 0.1)
        degradation.look(0.0)
        assert degradation.num_in_force == left


def test_each_step_does_what_it_says() -> None:
    clock = ManualClock()
    degradation = Degradation(steps_of(ALL), clock)
    asked = request(max_tokens=1000)
    degradation.check(Priority.BATCH, 1.0)
    assert degradation.shortened(asked) is asked and degradation.allows_local_prefill
    degradation.look(2.0)
    with pytest.raises(QueueFull, match="class batch") as refused:
        degradation.check(Priority.BATCH, 2.0)
    assert refused.value.retry_after_s == 3.0
    degradation.check(Priority.STANDARD, 2.0)
    degradation.look(5.0)
    assert degradation.shortened(asked).sampling.max_tokens == 256
    least = structs.replace(asked, sampling=structs.replace(asked.sampling, min_tokens=300))
    assert degradation.shortened(least).sampling.max_tokens == 300
    degradation.look(10.0)
    assert not degradation.allows_local_prefill
    degradation.look(20.0)
    assert degradation.in_words == "shed=batch,max-tokens=256,local-prefill=off,refuse"
    with pytest.raises(QueueFull, match="while others wait"):
        degradation.check(Priority.INTERACTIVE, 20.0)
    degradation.check(Priority.INTERACTIVE, 0.0)
