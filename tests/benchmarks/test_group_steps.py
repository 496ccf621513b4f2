"""What a step of ranks takes is told apart by what they say of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.group_steps import GroupStep, GroupSteps
from cluster.rank_facts import RankWait
from engine.runner.ranks.group import RankGroup


def test_imbalance_is_no_overhead_and_the_slowest_rank_s_waits_are_told() -> None:
    step = GroupStep(step_ms=10.0, own_ms=(4.0, 9.0, 7.0), waited_ms=(5.0, 0.25, 2.0))
    assert step.imbalance_ms == 5.0
    assert step.overhead_ms == 1.0
    assert step.slowest_waited_ms == 0.25


class LateGroup(RankGroup):
    """Whose rank 1 tells of a step when it has been asked twice."""

    def __init__(self) -> None:
        self.num_asked = 0

    def waits_now(self) -> list[RankWait]:
        """See RankGroup."""
        self.num_asked += 1
        own = wait(0, 7.0 if self.num_asked > 1 else 5.0, 3.0 if self.num_asked > 1 else 2.0)
        return [own, wait(1, 7.0, 1.5) if self.num_asked > 3 else wait(1, 5.0, 1.0)]


def wait(rank: int, stepped_s: float, called_s: float) -> RankWait:
    return RankWait(
        rank=rank, num_plans=1, waited_s=called_s / 2, called_s=called_s, stepped_s=stepped_s
    )


def test_a_step_is_told_once_every_rank_has_said_what_it_took() -> None:
    runner = SimpleNamespace(forward=lambda batch: None)
    steps = GroupSteps(cast(Any, SimpleNamespace(others=LateGroup(), runner=runner)))
    step = steps.take(cast(Any, None))
    assert step.own_ms == pytest.approx((1000.0, 1500.0))
    assert step.waited_ms == pytest.approx((500.0, 250.0))
