"""A draft model on a late device: a draft is launched whole, and read once; steps run ahead where
nothing is guessed or read."""

from __future__ import annotations

from typing import Any

import pytest

from engine.step.drafters.model import MOST_LAG
from engine.step.engine import Engine
from tests.engine.runner.lazy_drawer import LazyDrawer
from tests.engine.runner.lazy_runner import LazyRunner, lazy_replica
from tests.engine.step.engine_scenario import expected_tokens, request, small_engine, step
from tests.engine.step.model_guessing import drafter_of, model_engine, num_misses
from tests.engine.step.test_model_drafts import NOW_AND_THEN, RIGHT, WRONG, long_prompt
from tests.engine.step.test_run_ahead import assert_empty
from tests.engine.step.test_speculation import SAMPLING, answers

PROMPT = [1, 2, 3]


def late_engine(*, every: int = RIGHT, **more: Any) -> tuple[Engine, LazyRunner, LazyDrawer]:
    """With what its target and its draft model have computed."""
    replica, target = lazy_replica(256)
    engine = model_engine(replica, every=every, is_late=True, **({"max_batch_tokens": 64} | more))
    draft: Any = drafter_of(engine)._model.runner
    return engine, target, draft


@pytest.mark.parametrize("every", [RIGHT, NOW_AND_THEN, WRONG])
@pytest.mark.parametrize("num_seqs", [1, 8])
def test_tokens_are_those_without_drafts(num_seqs: int, every: int) -> None:
    bodies = [
        request(str(i), [i % 5, 1, 2], max_tokens=12 + 3 * i, temperature=i % 3, seed=i)
        for i in range(num_seqs)
    ]
    engine, _, draft = late_engine(every=every)
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert any(line.startswith("launch") for line in draft.log)
    assert drafter_of(engine)._care._num_failures == 0
    if every == RIGHT:
        assert num_misses(engine) == 0
    step(engine)
    assert_empty(engine)


def test_a_draft_is_launched_whole_before_any_token_of_it_is_read() -> None:
    engine, _, draft = late_engine()
    answers(engine, [request("a", PROMPT, max_tokens=30)])
    begun = draft.log.index("draw 0 of 1")
    own = draft.log[begun : draft.log.index("forward", begun)]
    num_tokens = len(own) // 2
    assert num_tokens > 2
    launched = [f"launch {number} of 1" for number in range(1, num_tokens)]
    reads = [f"read {number}" for number in range(num_tokens)]
    assert own == ["draw 0 of 1", *launched, *reads]


@pytest.mark.parametrize("kind", SAMPLING)
def test_every_way_to_sample_gives_the_same_tokens_and_its_guesses_are_as_right(kind: str) -> None:
    """Guesses with penalties wait for each other; all others do not."""
    body = request("a", PROMPT, max_tokens=24, **SAMPLING[kind])
    [plain], _ = answers(small_engine(lazy_replica(64)[0]), [body])
    engine, _, draft = late_engine()
    [found], _ = answers(engine, [body])
    assert found.tokens == plain.tokens
    assert num_misses(engine) == 0
    is_adjusted = bool({"frequency_penalty", "logit_bias"} & {*SAMPLING[kind]})
    assert any(line.startswith("launch") for line in draft.log) is not is_adjusted


def test_a_larger_vocabulary_than_the_targets_is_left_to_the_host() -> None:
    engine, _, draft = late_engine(vocab_size=300)
    body = request("a", PROMPT, max_tokens=24)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert draft.log
    assert set(draft.log) == {"forward"}


def test_a_long_prompt_is_read_though_the_target_could_run_ahead() -> None:
    engine, target, draft = late_engine()
    prompt = long_prompt(MOST_LAG * 8)
    body = request("a", prompt, max_tokens=60)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert found.ended is not None
    assert found.ended.accepted_draft_tokens > 20
    assert draft._runner.num_tokens > len(prompt)
    assert num_misses(engine) == 0


def test_where_the_draft_model_rests_steps_run_ahead() -> None:
    engine, target, draft = late_engine(every=WRONG)
    body = request("a", PROMPT, max_tokens=60)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    last = max(row for row, line in enumerate(target.log) if line == "forward")
    assert sum(line.startswith("launch") for line in target.log[last:]) > 20


@pytest.mark.parametrize("place", [3, 9])
def test_a_device_that_is_lost_in_a_draft_costs_the_draft_alone(place: int) -> None:
    engine, _, draft = late_engine()
    draft.lost.add(place)
    body = request("a", PROMPT, max_tokens=40)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert f"read {place}" in draft.log
