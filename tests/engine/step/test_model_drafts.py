"""Texts with a draft model are those without, to the last token; its KV is never another's."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from engine.contract.commands import GenerateRequest, PrefillMode, Submit
from engine.contract.draft_numbers import DrafterKind, DraftNumbers
from engine.offline.queue import Completion, collect
from engine.step.drafters.guess_care import MAX_FAILURES
from engine.step.drafters.model import MOST_LAG
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    check,
    expected_tokens,
    request,
    small_engine,
    small_replica,
    step,
)
from tests.engine.step.guessing import TickingClock
from tests.engine.step.model_guessing import drafter_of, model_engine, num_misses
from tests.engine.step.test_speculation import SAMPLING, answers

ALWAYS = frozenset(range(1000))
RIGHT, NOW_AND_THEN, WRONG = 0, 3, 1
"""Places at which the draft model errs: none, each third, all."""


@pytest.mark.parametrize("every", [RIGHT, NOW_AND_THEN, WRONG])
@pytest.mark.parametrize("num_seqs", [1, 16])
def test_tokens_are_those_without_drafts_alone_and_sixteen_at_once(
    num_seqs: int, every: int
) -> None:
    bodies = [
        request(str(i), [i % 5, 1, 2], max_tokens=20, temperature=i % 3, seed=i)
        for i in range(num_seqs)
    ]
    engine = model_engine(small_replica(256), every=every, max_batch_tokens=64, max_num_seqs=16)
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    tried = sum(done.ended.draft_tokens for done in found if done.ended is not None)
    assert tried > 0


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_a_draft_model_that_is_the_target_is_always_right_at_any_temperature(
    temperature: float,
) -> None:
    """By the same numbers: this is what shares the noise."""
    body = request("a", [1, 2, 3], max_tokens=60, temperature=temperature)
    engine = model_engine(small_replica(64))
    [found], num_steps = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert num_misses(engine) == 0
    assert found.ended is not None
    assert found.ended.accepted_draft_tokens == found.ended.draft_tokens > 40
    assert num_steps < 20


@pytest.mark.parametrize("every", [RIGHT, NOW_AND_THEN])
@pytest.mark.parametrize("kind", SAMPLING)
def test_every_way_to_sample_gives_the_same_tokens_and_logprobs(kind: str, every: int) -> None:
    body = request("a", [1, 2, 3], max_tokens=24, **SAMPLING[kind])
    [plain], _ = answers(small_engine(small_replica(64)), [body])
    engine = model_engine(small_replica(64), every=every)
    [found], _ = answers(engine, [body])
    assert found.tokens == plain.tokens  # logprobs too
    if every == RIGHT:
        assert num_misses(engine) == 0  # penalties and bans are the draft's as well


def test_each_choice_reads_its_own_tokens() -> None:
    body = request("a", [1, 2, 3], max_tokens=14, n=3)
    engine = model_engine(small_replica(64))
    [found], _ = answers(engine, [body])
    for choice in range(3):
        assert found.token_ids(choice) == expected_tokens(body, choice)
    assert num_misses(engine) == 0


@pytest.mark.parametrize("place", range(9))
def test_a_stop_token_in_the_midst_of_a_draft_ends_the_text_there(place: int) -> None:
    body = request("a", [1, 2, 3], max_tokens=20, temperature=0.0)
    answer = expected_tokens(body)
    stop = answer[place]
    body = structs.replace(body, sampling=structs.replace(body.sampling, stop_token_ids=(stop,)))
    [found], _ = answers(model_engine(small_replica(64)), [body])
    assert found.token_ids() == answer[: answer.index(stop) + 1]


def long_prompt(num_tokens: int) -> list[int]:
    return [(i * i) % 7 for i in range(num_tokens)]


def test_a_long_prompt_is_read_over_several_steps_and_drafted_for_then() -> None:
    body = request("a", long_prompt(MOST_LAG * 8), max_tokens=60)
    engine = model_engine(small_replica(256), max_batch_tokens=64)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert found.ended is not None
    assert found.ended.draft_tokens > 30
    assert num_misses(engine) == 0


def test_choices_read_their_prompt_once() -> None:
    prompt = long_prompt(MOST_LAG * 8)
    read = list[int]()
    for n in (1, 4):
        engine = model_engine(small_replica(400), max_batch_tokens=64)
        body = request("a", prompt, max_tokens=40, n=n)
        [found], _ = answers(engine, [body])
        assert [found.token_ids(c) for c in range(n)] == [
            expected_tokens(body, c) for c in range(n)
        ]
        assert num_misses(engine) == 0
        read.append(num_read_by_draft(engine))
    assert read[1] - read[0] < 3 * len(prompt)


def test_a_prompt_whose_blocks_the_draft_has_read_is_not_read_again() -> None:
    engine = model_engine(small_replica(256), max_batch_tokens=64)
    prompt = long_prompt(MOST_LAG * 8)
    read = list[int]()
    for name in "ab":
        body = request(name, prompt, max_tokens=40)
        before = num_read_by_draft(engine)
        [found], _ = answers(engine, [body])
        assert found.token_ids() == expected_tokens(body)
        read.append(num_read_by_draft(engine) - before)
    assert read[0] > len(prompt) > 2 * read[1]
    assert num_misses(engine) == 0


def num_read_by_draft(engine: Engine) -> int:
    runner: Any = drafter_of(engine)._model.runner
    return int(runner.num_tokens)


def test_blocks_that_others_had_meanwhile_are_read_anew() -> None:
    """Ten blocks, and prompts that drive each other's out of them."""
    engine = model_engine(small_replica(12), max_batch_tokens=64)
    bodies = [request(str(i), [i % 3, 1, 2, 3, 4, 5], max_tokens=12) for i in range(9)]
    for body in bodies:
        [found], _ = answers(engine, [body])
        assert found.token_ids() == expected_tokens(body)
    assert num_misses(engine) == 0


def test_a_preempted_sequence_is_read_anew() -> None:
    engine = model_engine(small_replica(14), prefix_cache=False, max_batch_tokens=64)
    bodies = [request(str(i), [i, 1], max_tokens=20) for i in range(2)]
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert engine.load.now().num_preemptions > 0
    assert num_misses(engine) == 0


def test_blocks_of_what_was_computed_are_cached_as_without_drafts() -> None:
    snapshots = []
    for engine in (small_engine(small_replica(64)), model_engine(small_replica(64), every=3)):
        body = request("a", [1, 2, 3, 4, 5], max_tokens=21)
        answers(engine, [body])
        snapshots.append({block.name for block in engine.placement.cache.snapshot()})
        again = request("b", [*body.token_ids, *expected_tokens(body)], max_tokens=6)
        [found], _ = answers(engine, [again])
        assert found.token_ids() == expected_tokens(again)
    assert snapshots[0] == snapshots[1]


def test_blocks_of_guesses_are_given_back_after_each_step() -> None:
    engine = model_engine(small_replica(64), every=WRONG)
    engine.apply(Submit(request("a", [1, 2, 3], max_tokens=30)))
    for _ in range(12):
        step(engine)
        [lease] = engine.placement.pool.leases
        [sequence] = next(iter(engine.table)).sequences
        assert len(lease.block_ids) == -(-sequence.num_computed // 2)


def test_drafts_give_way_where_blocks_lack_and_nobody_is_preempted_for_them() -> None:
    engine = model_engine(small_replica(10), prefix_cache=False)
    bodies = [request(str(i), [i, 1], max_tokens=9) for i in range(2)]
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert engine.load.now().num_preemptions == 0


def test_a_sequence_longer_than_the_drafts_context_goes_on_without() -> None:
    body = request("a", [1, 2, 3], max_tokens=60)
    engine = model_engine(small_replica(64), max_context_tokens=30)
    [found], num_steps = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert found.ended is not None
    assert 10 < found.ended.draft_tokens < 30
    assert num_steps > 30


@pytest.mark.parametrize("vocab_size", [5, 9])
def test_a_vocabulary_filled_up_otherwise_changes_no_token(vocab_size: int) -> None:
    """Ids that the draft lacks are read as another; those that the target lacks never come."""
    bodies = [
        request("a", [6, 5, 6, 1], max_tokens=30, temperature=0.0),
        request("b", [6, 6, 2], max_tokens=30, logit_bias={6: 2.0}),
    ]
    found, _ = answers(model_engine(small_replica(64), vocab_size=vocab_size), bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]


def test_what_it_guessed_is_told_as_the_models() -> None:
    engine, numbers = model_engine(small_replica(64)), list[DraftNumbers]()
    completion = {"a": Completion()}
    engine.apply(Submit(request("a", [1, 2, 3], max_tokens=19)))
    while completion["a"].ended is None:
        frame = step(engine)
        numbers += [] if frame.draft_numbers is None else [frame.draft_numbers]
        collect(frame, completion)
    ended = completion["a"].ended
    assert list(numbers[-1].by_drafter) == [DrafterKind.MODEL]
    places = numbers[-1].by_drafter[DrafterKind.MODEL]
    assert sum(places.tried) == sum(places.kept) == ended.draft_tokens > 8
    assert numbers[-1].guess_s > 0
    assert ended.usage.accepted_prediction_tokens == ended.usage.rejected_prediction_tokens == 0


@pytest.mark.parametrize("first", range(1, 9))
def test_a_draft_model_that_fails_costs_no_request(first: int) -> None:
    bodies = [request(str(i), [i, 1], max_tokens=20) for i in range(3)]
    engine = model_engine(small_replica(64), fails_at=frozenset([first, first + 2]))
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert num_misses(engine) == 0


def test_after_some_failures_it_is_asked_no_more() -> None:
    engine = model_engine(small_replica(64), fails_at=ALWAYS)
    body = request("a", [1, 2, 3], max_tokens=60)
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    runner: Any = drafter_of(engine)._model.runner
    assert runner.num_calls == MAX_FAILURES


def test_one_that_has_failed_too_often_is_told_by_its_kind() -> None:
    engine, numbers = model_engine(small_replica(64), fails_at=ALWAYS), list[DraftNumbers]()
    completion = {"a": Completion()}
    engine.apply(Submit(request("a", [1, 2, 3], max_tokens=60)))
    while completion["a"].ended is None:
        frame = step(engine)
        numbers += [] if frame.drafts is None else [frame.drafts]
        collect(frame, completion)
    assert numbers[-1].out == [DrafterKind.MODEL]


def test_a_draft_model_that_does_not_pay_is_left_out() -> None:
    """It is always wrong: after a few tries the steps are the plain ones, but for a try now and
    then."""
    engine = model_engine(small_replica(256), every=WRONG)
    body = request("a", [1, 2, 3], max_tokens=300)
    [found], num_steps = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert found.ended is not None
    assert found.ended.draft_tokens < 60
    assert num_steps <= 301


def test_a_step_of_drafts_that_fails_is_computed_again_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = model_engine(small_replica(64))
    bodies = [request(str(i), [i, 1], max_tokens=12) for i in range(3)]
    runner = engine._computation._runner
    forward = runner.forward

    def fails_on_drafts(batch: Any) -> Any:
        if len(batch.logit_rows) > len(batch.context_lens):
            raise RuntimeError("no drafts today")
        return forward(batch)

    monkeypatch.setattr(runner, "forward", fails_on_drafts)
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert num_misses(engine) == 0


def test_an_engine_that_only_computes_prompts_reads_none_of_them_for_the_draft() -> None:
    engine = model_engine(small_replica(64))
    body = structs.replace(request("a", long_prompt(20)), mode=PrefillMode.EXPORT)
    engine.apply(Submit(body))
    for _ in range(6):
        step(engine)
    assert num_read_by_draft(engine) == 0
    check(engine)


def test_predictions_are_looked_up_beside_the_model() -> None:
    from tests.engine.step.guessing import oracles
    from tests.engine.step.model_guessing import with_draft

    body: GenerateRequest = request("a", [1, 2, 3], max_tokens=40)
    body = structs.replace(body, prediction=expected_tokens(body))
    engine = small_engine(
        with_draft(small_replica(64), every=2),
        clock=TickingClock(),
        make_guesser=oracles(0.0, shortest=MAX_DRAFT_TOKENS),
        max_batch_tokens=32,
    )
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert found.ended is not None
    assert found.ended.usage.accepted_prediction_tokens > 20
