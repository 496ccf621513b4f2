"""A pool under loads that rise and fall, by a clock of its own: prompts in a line, workers that
take their time to come, and a planner's verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cluster.scaling.scaler import PoolState
from planner.decision import Case, decide
from planner.memory import Memory
from planner.pool_limits import PoolLimits
from planner.sight import HighestSignal, RoleSight
from tests.planner.sights import RULES

PROMPTS_A_SECOND = 10.0
"""That one worker computes."""
BUDGET_S = 1.0
START_S = 60.0
LIMITS = (PoolLimits("prefill", 1, 8),)


@dataclass
class Pool:
    """One pool of prefill workers and its line, second by second."""

    num_ready: int = 1
    starting: list[float] = field(default_factory=list)
    num_in_line: float = 0.0
    memory: Memory = field(default_factory=Memory)
    sizes: list[tuple[float, int]] = field(default_factory=list)
    busy_s: float = 0.0
    busy_before_s: float = 0.0
    wanted: int = 1
    step_ratio: float | None = None
    """Of decode steps to their budget, however few sequences there are; None: no such signal."""

    def second(self, now_s: float, rate: float) -> None:
        self.starting = [due_s for due_s in self.starting if due_s > now_s]
        self.num_ready = self.wanted - len(self.starting)
        served = min(PROMPTS_A_SECOND * self.num_ready, self.num_in_line + rate)
        self.busy_s += served / PROMPTS_A_SECOND / self.num_ready
        self.num_in_line += rate - served

    @property
    def wait_s(self) -> float:
        return self.num_in_line / (PROMPTS_A_SECOND * self.num_ready)

    def look(self, now_s: float) -> None:
        state = PoolState(
            name="prefill",
            num_wanted=self.wanted,
            num_present=self.wanted,
            num_ready=self.num_ready,
            generation=1,
        )
        seen = RoleSight(
            role="prefill",
            pools=(state,),
            pressure=self._pressure(),
            num_seen=self.wanted,
            num_in_line=0,
            busy_share=0.0,
            work_share=(self.busy_s - self.busy_before_s) / RULES.look_interval_s,
        )
        self.busy_before_s = self.busy_s
        self.memory = self.memory.after(seen, RULES, now_s)
        verdict = decide(Case(seen, self.memory, LIMITS, RULES, now_s))
        if verdict.pool:
            self.memory = self.memory.tried(now_s)
            if verdict.size > self.wanted:
                self.memory = self.memory.grown(seen)
            self.starting += [now_s + START_S] * max(0, verdict.size - self.wanted)
            self.wanted = verdict.size
            self.sizes.append((now_s, verdict.size))

    def _pressure(self) -> HighestSignal:
        wait = self.wait_s / BUDGET_S
        if self.step_ratio is not None and self.step_ratio > wait:
            return HighestSignal("inter_token", self.step_ratio)
        return HighestSignal("wait", min(1000.0, wait))


def run(
    rate_at: Callable[[float], float], length_s: int, *, step_ratio: float | None = None
) -> Pool:
    pool = Pool(step_ratio=step_ratio)
    for now in range(length_s):
        pool.second(float(now), rate_at(float(now)))
        if now % int(RULES.look_interval_s) == 0:
            pool.look(float(now))
    return pool


@pytest.mark.parametrize("num_needed", [2, 3, 5])
def test_a_load_that_stays_gets_the_workers_that_it_needs_and_hardly_more(num_needed: int) -> None:
    rate = PROMPTS_A_SECOND * (num_needed - 0.5)
    pool = run(lambda now_s: rate, 1800)
    assert num_needed <= max(size for _, size in pool.sizes) <= 2 * num_needed
    assert pool.wait_s < BUDGET_S
    sizes = [size for _, size in pool.sizes]
    top = sizes.index(max(sizes))
    assert sizes[: top + 1] == sorted(sizes[: top + 1]), pool.sizes
    assert min(sizes[top:]) >= num_needed, pool.sizes  # less is not enough, and it knows
    assert len(sizes) <= 5, pool.sizes


def test_it_shrinks_to_its_least_when_the_load_is_gone_one_worker_at_a_time() -> None:
    pool = run(lambda now_s: 55.0 if now_s < 900 else 0.0, 5000)
    top = max(size for _, size in pool.sizes)
    shrunk = [(at, size) for at, size in pool.sizes if at > 900]
    assert [size for _, size in shrunk] == list(range(top - 1, 0, -1))
    assert shrunk[0][0] >= 900 + RULES.shrink_after_s
    gaps = [b - a for (a, _), (b, _) in zip(shrunk, shrunk[1:], strict=False)]
    assert min(gaps, default=math.inf) >= RULES.shrink_every_s


def test_a_load_that_comes_and_goes_every_five_minutes_does_not_make_it_swing() -> None:
    def rate_at(now_s: float) -> float:
        return 35.0 if now_s % 600 < 300 else 2.0

    pool = run(rate_at, 7200)
    after_the_first = [size for at, size in pool.sizes if at > 1200]
    assert after_the_first == [], pool.sizes


def test_a_burst_of_a_few_seconds_makes_no_worker() -> None:
    pool = run(lambda now_s: 25.0 if 100 <= now_s < 104 else 3.0, 600)
    assert pool.sizes == []


def test_a_load_beyond_the_most_ends_at_the_most() -> None:
    pool = run(lambda now_s: 200.0, 1800)
    assert pool.wanted == 8
    assert max(size for _, size in pool.sizes) == 8


@pytest.mark.parametrize("ratio", [0.8, 0.9, 3.0])
def test_steps_that_are_long_however_few_sequences_there_are_make_it_grow_once(
    ratio: float,
) -> None:
    pool = run(lambda now_s: 3.0, 7200, step_ratio=ratio)
    assert [size for _, size in pool.sizes] == [2]


def test_beside_steps_that_are_always_long_a_line_still_gets_its_workers() -> None:
    rate = PROMPTS_A_SECOND * 3.5
    pool = run(lambda now_s: 3.0 if now_s < 1800 else rate, 5400, step_ratio=0.9)
    assert 4 <= pool.wanted <= 8 and pool.wait_s < BUDGET_S, pool.sizes
