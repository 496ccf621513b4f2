"""Drafts where steps run ahead: a step lands before guesses are made of its tokens, and where there
are none the next ones run ahead again."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from engine.contract.commands import GenerateRequest
from engine.runner.draft_shapes import DraftShapes
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.engine import Engine
from tests.engine.runner.lazy_runner import LazyRunner, lazy_replica
from tests.engine.step.engine_scenario import (
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    step,
)
from tests.engine.step.guessing import TickingClock, oracles
from tests.engine.step.test_run_ahead import assert_empty, submit
from tests.engine.step.test_run_ahead_random import EOS, NUM_BLOCKS, compare, num_ahead
from tests.engine.step.test_speculation import predicted
from tests.engine.step.test_speculation_random import GuessingLife

PROMPT = [1, 2, 3]
ALWAYS_RIGHT, NOW_AND_THEN, ALWAYS_WRONG = 0.0, 0.3, 1.0


def drafting_engine(
    mistakes: float = ALWAYS_RIGHT, *, shapes: DraftShapes | None = None, **options: Any
) -> tuple[Engine, LazyRunner]:
    replica, runner = lazy_replica(64)
    engine = small_engine(
        replace(replica, draft_shapes=shapes),
        clock=TickingClock(),
        make_guesser=oracles(mistakes, shortest=MAX_DRAFT_TOKENS),
        **({"max_batch_tokens": 64, "max_num_seqs": 8} | options),
    )
    return engine, runner


def ended(engine: Engine, *bodies: GenerateRequest) -> Any:
    submit(engine, *bodies)
    return run_until_ended(engine, [body.request_id for body in bodies])


def test_a_step_lands_before_drafts_are_made_of_its_token() -> None:
    """One plain step is measured first; from then on every step verifies, and none is launched."""
    engine, runner = drafting_engine()
    body = predicted(request("a", PROMPT, max_tokens=40))
    assert ended(engine, body)["a"].token_ids() == expected_tokens(body)
    begun = ["forward", "launch 0 of 1", "launch 1 of 1", "read 0", "read 1"]
    assert runner.log[: len(begun)] == begun
    verified = runner.log[len(begun) :]
    assert set(verified) == {"forward"}
    assert len(verified) <= 6
    assert_empty(engine)


def test_where_nothing_is_guessed_any_more_steps_run_ahead_again() -> None:
    engine, runner = drafting_engine()
    body = request("a", PROMPT, max_tokens=30)
    body = structs.replace(body, prediction=expected_tokens(body)[:15])
    assert ended(engine, body)["a"].token_ids() == expected_tokens(body)
    last = max(row for row, line in enumerate(runner.log) if line == "forward")
    assert runner.log[last + 1 : last + 5] == [
        "launch 2 of 1",
        "launch 3 of 1",
        "read 2",
        "launch 4 of 1",
    ]
    step(engine)
    assert_empty(engine)


def test_without_a_guess_nothing_is_launched_later_than_without_a_drafter() -> None:
    engine, runner = drafting_engine()
    body = request("a", PROMPT, max_tokens=12)
    plain, plain_runner = lazy_replica(64)
    expected = ended(small_engine(plain, max_batch_tokens=64, max_num_seqs=8), body)
    found = ended(engine, body)
    assert found["a"].tokens == expected["a"].tokens
    assert runner.log == plain_runner.log


@pytest.mark.parametrize("mistakes", [ALWAYS_RIGHT, NOW_AND_THEN, ALWAYS_WRONG])
@pytest.mark.parametrize("num_seqs", [1, 8])
def test_tokens_are_those_without_drafts(num_seqs: int, mistakes: float) -> None:
    bodies = [
        predicted(request(str(i), [i % 5, 1, 2], max_tokens=20, temperature=i % 3, seed=i))
        for i in range(num_seqs)
    ]
    engine, runner = drafting_engine(mistakes)
    found = ended(engine, *bodies)
    assert [found[b.request_id].token_ids() for b in bodies] == [expected_tokens(b) for b in bodies]
    assert runner.log.count("forward") > 2
    step(engine)
    assert_empty(engine)


def test_no_draft_is_longer_than_the_longest_that_is_captured() -> None:
    shapes = DraftShapes(max_num_seqs=8, max_batch_tokens=16, max_context_tokens=64)
    engine, runner = drafting_engine(shapes=shapes)
    longest, forward = list[int](), runner.forward

    def noted(batch: Any) -> Any:
        if len(batch.logit_rows) > len(batch.context_lens):
            longest.append(batch.max_query_len - 1)
            assert shapes.holding(len(batch.context_lens), batch.max_query_len) in shapes.all()
        return forward(batch)

    runner.forward = noted  # type: ignore[method-assign]
    bodies = [predicted(request(str(i), [i % 5, 1, 2], max_tokens=24)) for i in range(8)]
    found = ended(engine, *bodies)
    assert [found[b.request_id].token_ids() for b in bodies] == [expected_tokens(b) for b in bodies]
    assert longest
    assert set(longest) <= {1, 2, 3, 7, 15}
    assert longest[0] == shapes.max_draft_tokens(8) == 1


class AheadLife(GuessingLife):
    """On a device that does nothing before somebody waits."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        replica, self.runner = lazy_replica(NUM_BLOCKS, EOS)
        self.engine = small_engine(
            replica,
            clock=TickingClock(),
            make_guesser=oracles(chance.choice([0.0, 0.2, 0.6]), chance.randrange(1000)),
            max_batch_tokens=chance.choice([4, 16, 40]),
            max_num_seqs=chance.choice([2, 4, 8]),
            prefix_cache=chance.random() < 0.7,
        )


@pytest.mark.parametrize("seed", range(24))
def test_random_lives_with_drafts_end_every_request_rightly_and_leak_no_block(seed: int) -> None:
    life = AheadLife(random.Random(seed))
    life.live(150)
    life.end()
    for name, body in life.bodies.items():
        found = life.completions[name]
        assert found.ended is not None
        assert found.ended.error_code in ("", "cancelled", "deadline_exceeded")
        is_whole = not found.ended.error_code and name not in life.disturbed
        compare(body, found, is_whole=is_whole)


def test_random_lives_have_drafts_and_steps_that_run_ahead() -> None:
    kept = ahead = 0
    for seed in range(8):
        life = AheadLife(random.Random(seed))
        life.live(150)
        life.end()
        ahead += num_ahead(life.runner)
        ends = [done.ended for done in life.completions.values() if done.ended is not None]
        kept += sum(ended.accepted_draft_tokens for ended in ends)
    assert ahead > 20
    assert kept > 20
