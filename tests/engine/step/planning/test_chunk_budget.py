"""How prompts share steps: by time beside decodes, by due time among themselves."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.offline.replica import OfflineSetup
from engine.step.planning.chunk_budget import FEWEST, LEAST_TAIL, STEP_FACTOR
from engine.step.planning.plan import Budget, Chunk, ChunkLimit, StepPlan
from engine.step.planning.scheduler import schedule
from engine.step.planning.step_cost import StepCost
from engine.step.planning.urgency import due_ms
from tests.engine.step.planning.test_scheduler import decode, prefill, waiting

COST = StepCost(base_ms=5.0, row_ms=0.5, token_ms=0.25, pair_ms=0.01)


def long_budget(**changes: Any) -> list[Budget]:
    """Of one home."""
    fields: dict[str, Any] = {
        "max_batch_tokens": 512,
        "max_num_seqs": 64,
        "num_available": 10_000,
        "seats_taken": 0,
        "cost": COST,
    }
    return [Budget(**(fields | changes))]


def step_ms(plan: StepPlan) -> float:
    chunks_ms = sum(COST.chunk_ms(chunk.num_tokens, chunk.context) for chunk in plan.chunks)
    return COST.decodes_ms(len(plan.decodes)) + chunks_ms


def test_a_prompt_alone_gets_the_whole_token_budget() -> None:
    plan = schedule([], [waiting(1, 2000)], long_budget())
    assert plan.chunks == (Chunk((1, 0), 512),)
    assert plan.limit is ChunkLimit.TOKENS


@pytest.mark.parametrize("num_decodes", [1, 4, 32])
@pytest.mark.parametrize("max_step_ms", [None, 20.0, 60.0])
def test_beside_decodes_a_chunk_is_as_long_as_the_step_may_take(
    num_decodes: int, max_step_ms: float | None
) -> None:
    running = [decode(i) for i in range(num_decodes)]
    limit_ms = max_step_ms or STEP_FACTOR * LEAST_TAIL * COST.decodes_ms(num_decodes)
    budget = long_budget(seats_taken=num_decodes, max_step_ms=max_step_ms)
    plan = schedule(running, [waiting(99, 2000)], budget)
    assert len(plan.decodes) == num_decodes
    assert plan.limit is ChunkLimit.TIME
    if plan.chunks[0].num_tokens > FEWEST:  # more than what is always given
        assert step_ms(plan) <= limit_ms
        assert step_ms(plan) + 2 * COST.token_ms > limit_ms


def test_where_nobody_reads_along_a_chunk_beside_decodes_is_as_long_as_any() -> None:
    budget = long_budget(seats_taken=4, max_step_ms=OfflineSetup().options.max_step_ms)
    plan = schedule([decode(i) for i in range(4)], [waiting(99, 2000)], budget)
    assert plan.chunks == (Chunk((99, 0), 512 - 4),)


def test_chunks_get_shorter_as_the_context_of_their_prompt_grows() -> None:
    cost = StepCost(base_ms=5.0, row_ms=0.5, token_ms=0.1, pair_ms=0.1)
    lengths = [
        schedule([decode(1), prefill(2, 9000, num_computed=context)], [], long_budget(cost=cost))
        .chunks[0]
        .num_tokens
        for context in (0, 1024, 4096)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


@pytest.mark.parametrize("max_step_ms", [None, 0.1])
def test_a_step_that_decodes_always_computes_some_of_a_prompt(max_step_ms: float | None) -> None:
    slow_prompts = StepCost(base_ms=5.0, token_ms=5.0)
    budget = long_budget(cost=slow_prompts, max_step_ms=max_step_ms)
    plan = schedule([decode(1)], [waiting(2, 300), waiting(3, 300)], budget)
    assert plan.chunks == (Chunk((2, 0), FEWEST),)


@pytest.mark.parametrize("num_decodes", [1, 4, 16])
def test_beside_decodes_a_long_prompt_takes_no_longer_than_its_share_of_the_steps_allows(
    num_decodes: int,
) -> None:
    """The costs of SmolLM2-135M on two cores, in proportion: see the constants."""
    cost = StepCost(base_ms=5.0, row_ms=0.25, token_ms=0.42, pair_ms=0.2)
    budget, computed, took_ms = long_budget(cost=cost), 0, 0.0
    while computed < 2000:
        prompt = prefill(99, 2000 - computed, num_computed=computed)
        chunk = schedule([*map(decode, range(num_decodes)), prompt], [], budget).chunks[0]
        computed += chunk.num_tokens
        took_ms += cost.decodes_ms(num_decodes) + cost.chunk_ms(chunk.num_tokens, chunk.context)
    factor = STEP_FACTOR * LEAST_TAIL
    assert took_ms < 1.1 * factor / (factor - 1) * cost.chunk_ms(2000, 0)


def test_beside_decodes_the_first_chunks_are_short_until_one_is_measured() -> None:
    budget = long_budget(cost=StepCost(base_ms=5.0))
    plan = schedule([decode(1)], [waiting(2, 300)], budget)
    assert plan.chunks == (Chunk((2, 0), 16),)
    assert plan.limit is ChunkLimit.UNMEASURED


def test_a_prompt_that_ends_waits_for_little_of_the_others() -> None:
    running = [prefill(1, 1800, due_ms=2000.0)]
    plan = schedule(running, [waiting(2, 100, due_ms=300.0)], long_budget(seats_taken=1))
    assert plan.chunks == (Chunk((2, 0), 100), Chunk((1, 0), 28))
    assert plan.limit is ChunkLimit.SHARE


def test_a_prompt_that_ends_and_fills_its_share_has_the_step_to_itself() -> None:
    running = [prefill(1, 1800, due_ms=2000.0)]
    plan = schedule(running, [waiting(2, 300, due_ms=300.0)], long_budget(seats_taken=1))
    assert plan.chunks == (Chunk((2, 0), 300),)
    assert plan.admitted == ((2, 0),)


def test_a_long_prompt_before_which_nobody_goes_keeps_large_chunks() -> None:
    running = [prefill(1, 1800, due_ms=200.0)]
    plan = schedule(running, [waiting(2, 100, due_ms=300.0)], long_budget(seats_taken=1))
    assert plan.chunks == (Chunk((1, 0), 512),)
    assert plan.admitted == ()


def test_a_short_prompt_waits_for_the_step_under_way_and_for_no_other() -> None:
    """Long prompts keep a prefill worker busy; short ones come now and then."""
    engine = PromptsOnly(random.Random(7))
    for _ in range(40):
        engine.arrive(2000, count=1)
        for _ in range(3):
            engine.arrive(engine.chance.randrange(20, 100), count=1)
            engine.run_ms(400.0)
    short_waits_ms = [ended.wait_ms for ended in engine.ended if ended.num_tokens < 2000]
    longest_step_ms = COST.chunk_ms(512, 2000)
    assert len(short_waits_ms) > 100
    assert max(short_waits_ms) <= longest_step_ms + 2 * COST.chunk_ms(128, 2000)


@pytest.mark.parametrize("seed", range(8))
def test_no_prompt_waits_longer_than_for_what_was_due_before_it(seed: int) -> None:
    """Overload without end: more arrives than can be computed, most of it short."""
    engine = PromptsOnly(random.Random(seed))
    for _ in range(300):
        engine.arrive(engine.chance.choice([20, 50, 100, 400, 2000]), count=1)
        engine.run_ms(engine.chance.uniform(0.0, 60.0))
    assert len(engine.ended) > 100
    assert any(prompt.num_tokens == 2000 for prompt in engine.ended)
    step_under_way_ms = COST.chunk_ms(512, 2000)
    for prompt in engine.ended:
        before = [p for p in engine.all_prompts if p.is_ahead_of(prompt)]
        work_ms = sum(COST.chunk_ms(p.num_tokens, 0) for p in before)
        shared_ms = len(before) * COST.chunk_ms(128, 2000)  # what others get in the same steps
        assert prompt.ended_ms - prompt.arrived_ms <= step_under_way_ms + work_ms + shared_ms


@dataclass
class Prompt:
    """A prompt on its way through a prefill worker."""

    arrival: int
    num_tokens: int
    arrived_ms: float
    due_ms: float
    num_computed: int = 0
    is_in: bool = False
    ended_ms: float = 0.0

    def is_ahead_of(self, other: Prompt) -> bool:
        """True for what is due before the other and was not over when it came; itself too."""
        is_alive = not self.ended_ms or self.ended_ms > other.arrived_ms
        return is_alive and self.due_ms <= other.due_ms

    @property
    def wait_ms(self) -> float:
        """Beyond what it would have taken alone."""
        return self.ended_ms - self.arrived_ms - COST.chunk_ms(self.num_tokens, 0)


@dataclass
class PromptsOnly:
    """A prefill worker whose steps take exactly what they cost."""

    chance: random.Random
    now_ms: float = 0.0
    idle_ms: float = 0.0
    prompts: list[Prompt] = field(default_factory=list)
    all_prompts: list[Prompt] = field(default_factory=list)
    ended: list[Prompt] = field(default_factory=list)

    def arrive(self, num_tokens: int, *, count: int) -> None:
        for _ in range(count):
            due = due_ms(self.now_ms, num_tokens=num_tokens, deadline_ms=1e9, cost=COST)
            prompt = Prompt(len(self.all_prompts), num_tokens, self.now_ms, due)
            self.prompts.append(prompt)
            self.all_prompts.append(prompt)

    def run_ms(self, duration_ms: float) -> None:
        until_ms = self.now_ms + duration_ms
        while self.prompts and self.now_ms < until_ms:
            self._step()
        if self.now_ms < until_ms:
            self.idle_ms += until_ms - self.now_ms
            self.now_ms = until_ms

    def _step(self) -> None:
        running = [
            prefill(
                p.arrival,
                p.num_tokens - p.num_computed,
                num_computed=p.num_computed,
                due_ms=p.due_ms,
            )
            for p in self.prompts
            if p.is_in
        ]
        queue = sorted((p for p in self.prompts if not p.is_in), key=lambda p: p.due_ms)
        views = [waiting(p.arrival, p.num_tokens, due_ms=p.due_ms) for p in queue]
        plan = schedule(running, views, long_budget(seats_taken=len(running)))
        self.now_ms += sum(COST.chunk_ms(c.num_tokens, c.context) for c in plan.chunks)
        found = {(p.arrival, 0): p for p in self.prompts}
        for key in plan.admitted:
            found[key].is_in = True
        for chunk in plan.chunks:
            found[chunk.key].num_computed += chunk.num_tokens
        for prompt in found.values():
            if prompt.num_computed == prompt.num_tokens:
                prompt.ended_ms = self.now_ms
                self.ended.append(prompt)
                self.prompts.remove(prompt)
