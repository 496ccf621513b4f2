"""Texts with a head are those without, to the last token; what it reads is its sequence's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from engine.contract.commands import GenerateRequest, Submit
from engine.contract.draft_numbers import DrafterKind, DraftNumbers
from engine.offline.queue import Completion, collect
from engine.step.drafters.guess_care import MAX_FAILURES
from engine.step.drafters.head_reader import MOST_PENDING
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    expected_tokens,
    request,
    small_engine,
    small_replica,
    step,
)
from tests.engine.step.head_guessing import (
    drafter_of,
    head_engine,
    head_of,
    num_misses,
    with_head,
)
from tests.engine.step.test_speculation import SAMPLING, answers

RIGHT, NOW_AND_THEN, WRONG = 0, 3, 1
"""Places at which the head errs: none, each third, all."""


def num_tried(found: list[Completion]) -> int:
    return sum(done.ended.draft_tokens for done in found if done.ended is not None)


@pytest.mark.parametrize("every", [RIGHT, NOW_AND_THEN, WRONG])
@pytest.mark.parametrize("num_seqs", [1, 16])
def test_tokens_are_those_without_drafts_alone_and_sixteen_at_once(
    num_seqs: int, every: int
) -> None:
    bodies = [
        request(str(i), [i % 5, 1, 2], max_tokens=20, temperature=i % 3, seed=i)
        for i in range(num_seqs)
    ]
    engine = head_engine(small_replica(256), every=every, max_batch_tokens=64, max_num_seqs=16)
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert num_tried(found) > 0
    assert head_of(engine).num_strange == 0


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_a_head_that_says_what_the_target_says_is_always_right_at_any_temperature(
    temperature: float,
) -> None:
    """By the same numbers: this is what shares the noise."""
    body = request("a", [1, 2, 3], max_tokens=60, temperature=temperature)
    engine = head_engine(small_replica(64))
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
    engine = head_engine(small_replica(64), every=every)
    [found], _ = answers(engine, [body])
    assert found.tokens == plain.tokens  # logprobs too
    if every == RIGHT:
        assert num_misses(engine) == 0  # penalties and bans are the head's as well


def test_each_choice_has_states_of_its_own() -> None:
    body = request("a", [1, 2, 3], max_tokens=14, n=3)
    engine = head_engine(small_replica(64))
    [found], _ = answers(engine, [body])
    for choice in range(3):
        assert found.token_ids(choice) == expected_tokens(body, choice)
    assert num_misses(engine) == head_of(engine).num_strange == 0
    assert num_tried([found]) > 10


def long_prompt(num_tokens: int) -> list[int]:
    return [(i * i) % 7 for i in range(num_tokens)]


@pytest.mark.parametrize("chunk", [5, 16, 64])
def test_a_prompt_is_read_as_it_is_computed_in_whatever_chunks(chunk: int) -> None:
    body = request("a", long_prompt(MOST_PENDING * 8 + 3), max_tokens=30)
    engine = head_engine(small_replica(256), max_batch_tokens=chunk)
    [found] = collected(engine, body)
    assert found.token_ids() == expected_tokens(body)
    assert num_tried([found]) > 20
    assert num_misses(engine) == head_of(engine).num_strange == 0


def test_behind_cached_blocks_the_head_begins_with_the_first_state_that_comes() -> None:
    """It has no states of tokens that nobody computed here, and guesses without them."""
    engine = head_engine(small_replica(256), max_batch_tokens=64)
    firsts = list[int]()
    for name in ("a", "b"):
        body = request(name, long_prompt(40), max_tokens=12)
        [found] = collected(engine, body, firsts=firsts)
        assert found.token_ids() == expected_tokens(body)
        assert num_tried([found]) > 5
    assert firsts[0] == 0
    assert firsts[-1] == 38
    assert num_misses(engine) == head_of(engine).num_strange == 0


def collected(
    engine: Engine, *bodies: GenerateRequest, firsts: list[int] | None = None
) -> list[Completion]:
    """`firsts`: gets where the head began, after each step and for each sequence."""
    for body in bodies:
        engine.apply(Submit(body))
    completions = {body.request_id: Completion() for body in bodies}
    for _ in range(400):
        collect(step(engine), completions)
        heads = [s.head_kv for r in engine.table for s in r.sequences]
        if firsts is not None:
            firsts += [kv.first for kv in heads if kv is not None]
        if all(done.ended for done in completions.values()):
            return list(completions.values())
    raise AssertionError(completions)


@pytest.mark.parametrize("call", range(1, 6))
def test_a_head_that_fails_costs_its_drafts_and_reads_anew(call: int) -> None:
    body = request("a", [1, 2, 3], max_tokens=40)
    engine = head_engine(small_replica(64), fails_at=frozenset([call]))
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert num_tried([found]) > 10
    assert num_misses(engine) == head_of(engine).num_strange == 0


def test_what_a_head_reads_is_waited_for_where_it_is_measured() -> None:
    waits = list[int]()
    target = with_head(small_replica(64), every=WRONG)
    assert target.heads is not None
    heads = replace(target.heads, wait=lambda: waits.append(1))
    engine = head_engine(replace(target, heads=heads))
    answers(engine, [request("a", [1] * (MOST_PENDING + 1), max_tokens=2)])
    assert waits == [1]


def test_a_head_that_fails_again_and_again_is_left_alone() -> None:
    body = request("a", [1, 2, 3], max_tokens=60)
    engine = head_engine(small_replica(64), fails_at=frozenset(range(1, 1000)))
    [found], _ = answers(engine, [body])
    assert found.token_ids() == expected_tokens(body)
    assert num_tried([found]) == 0
    assert head_of(engine).num_calls == MAX_FAILURES
    assert drafter_of(engine).take_time().all_s >= 0
    assert engine._speculation is not None and engine._speculation.out == [DrafterKind.HEADS]


def test_what_became_of_its_drafts_is_counted_as_the_heads() -> None:
    body = request("a", [1, 2, 3], max_tokens=40, temperature=0.0)
    engine = head_engine(small_replica(64), every=NOW_AND_THEN)
    engine.apply(Submit(body))
    last = DraftNumbers()
    for _ in range(100):
        last = step(engine).draft_numbers or last
        if engine.is_idle:
            break
    [kind] = last.by_drafter
    assert kind is DrafterKind.HEADS
    places = last.by_drafter[kind]
    assert sum(places.tried) > sum(places.kept) > 0
    assert last.guess_s > 0


def test_an_answer_in_the_midst_of_which_the_head_errs_ends_where_it_would() -> None:
    body = request("a", [1, 2, 3], max_tokens=20, temperature=0.0)
    answer = expected_tokens(body)
    for place in range(6):
        stop = structs.replace(body.sampling, stop_token_ids=(answer[place],))
        asked = structs.replace(body, sampling=stop)
        [found], _ = answers(head_engine(small_replica(64), every=NOW_AND_THEN), [asked])
        assert found.token_ids() == answer[: answer.index(answer[place]) + 1]
