"""A head beside steps that run ahead: what these leave is kept when they are launched, and read
when their tokens are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    expected_tokens,
    request,
    small_engine,
    small_replica,
    step,
)
from tests.engine.step.guessing import TickingClock
from tests.engine.step.head_guessing import (
    AheadLeaver,
    drafter_of,
    head_engine,
    head_of,
    num_misses,
)
from tests.engine.step.test_head_drafts import NOW_AND_THEN, RIGHT, WRONG, num_tried
from tests.engine.step.test_run_ahead import assert_empty
from tests.engine.step.test_run_ahead_random import EOS, NUM_BLOCKS, Life, compare, num_ahead
from tests.engine.step.test_speculation import SAMPLING, answers


def ahead_engine(*, every: int = RIGHT, **more: Any) -> tuple[Engine, AheadLeaver]:
    """And what computes its target's steps."""
    target = more.pop("target", None) or small_replica(256)
    engine = head_engine(target, every=every, runs_ahead=True, **({"max_batch_tokens": 64} | more))
    runner = engine._computation._runner
    assert isinstance(runner, AheadLeaver)
    return engine, runner


@pytest.mark.parametrize("every", [RIGHT, NOW_AND_THEN, WRONG])
@pytest.mark.parametrize("num_seqs", [1, 8])
def test_tokens_are_those_without_drafts(num_seqs: int, every: int) -> None:
    bodies = [
        request(str(i), [i % 5, 1, 2], max_tokens=12 + 3 * i, temperature=i % 3, seed=i)
        for i in range(num_seqs)
    ]
    engine, runner = ahead_engine(every=every)
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert num_tried(found) > 0
    assert head_of(engine).num_strange == 0
    assert drafter_of(engine)._care._num_failures == 0
    if every == RIGHT:
        assert num_misses(engine) == 0
    step(engine)
    assert_empty(engine)


def test_drafts_go_on_behind_steps_that_ran_ahead() -> None:
    """The first steps are plain ones, as nothing is measured yet: their states were kept."""
    engine, runner = ahead_engine()
    body = request("a", [1, 2, 3], max_tokens=60)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    launched = [row for row, line in enumerate(runner.log) if line.startswith("launch")]
    verified = [row for row, line in enumerate(runner.log) if line == "forward" and row]
    assert launched[0] < verified[0]
    assert found.ended is not None
    assert found.ended.accepted_draft_tokens == found.ended.draft_tokens > 40
    assert drafter_of(engine)._reader is not None


@pytest.mark.parametrize("kind", SAMPLING)
def test_every_way_to_sample_gives_the_same_tokens(kind: str) -> None:
    body = request("a", [1, 2, 3], max_tokens=24, **SAMPLING[kind])
    [plain], _ = answers(small_engine(small_replica(64)), [body])
    engine, _ = ahead_engine()
    [found], _ = answers(engine, [body])
    assert found.tokens == plain.tokens
    assert num_misses(engine) == 0


def test_of_a_head_that_rests_nothing_is_kept_and_steps_run_ahead() -> None:
    engine, runner = ahead_engine(every=WRONG)
    body = request("a", [1, 2, 3], max_tokens=60)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert drafter_of(engine)._care.is_resting
    assert drafter_of(engine).left() is None
    last = max(row for row, line in enumerate(runner.log) if line == "forward")
    assert sum(line.startswith("launch") for line in runner.log[last:]) > 20


class AheadHeadLife(Life):
    """Requests of every kind that come, are cancelled and finished."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.every = chance.choice([0, 0, 1, 3])
        self.clock = TickingClock()
        self.engine, self.runner = ahead_engine(
            target=small_replica(NUM_BLOCKS, EOS),
            every=self.every,
            clock=self.clock,
            max_batch_tokens=chance.choice([4, 16, 40]),
            max_num_seqs=chance.choice([2, 4, 8]),
            prefix_cache=chance.random() < 0.7,
        )


@pytest.mark.parametrize("seed", range(12))
def test_random_requests_get_the_tokens_of_an_engine_without_drafts(seed: int) -> None:
    life = AheadHeadLife(random.Random(seed))
    life.live(150)
    life.end()
    for name, body in life.bodies.items():
        found = life.completions[name]
        assert found.ended is not None
        assert found.ended.error_code in ("", "cancelled", "deadline_exceeded")
        is_whole = not found.ended.error_code and name not in life.disturbed
        compare(body, found, is_whole=is_whole)
    assert head_of(life.engine).num_strange == 0
    assert drafter_of(life.engine)._care._num_failures == 0


def test_random_lives_keep_drafts_and_run_ahead() -> None:
    kept = ahead = 0
    for seed in range(5):
        life = AheadHeadLife(random.Random(seed))
        life.live(150)
        life.end()
        ends = [done.ended for done in life.completions.values() if done.ended is not None]
        kept += sum(ended.accepted_draft_tokens for ended in ends)
        ahead += num_ahead(life.runner)
    assert kept > 20
    assert ahead > 20
