"""Beam searches in a small engine: their answers, their blocks, and what they do to others."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from cluster.beam_search import BeamSearch, EarlyStopping
from cluster.errors import InvalidRequest
from engine.contract.commands import Cancel, GenerateRequest, PrefillMode, Submit
from engine.offline.queue import Completion, collect
from engine.process.fake_runner import fake_logits
from engine.step.engine import Engine
from tests.engine.step.beam_reference import searched
from tests.engine.step.engine_scenario import (
    VOCAB_SIZE,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

END = 3
STOPS = tuple(EarlyStopping)


def search(
    name: str, prompt: list[int], *, width: int = 2, n: int | None = None, **changes: Any
) -> GenerateRequest:
    """Of texts that end with END."""
    penalty = changes.pop("length_penalty", 1.0)
    stopping = changes.pop("early_stopping", EarlyStopping.NO_BETTER_NOW)
    beams = BeamSearch(width=width, length_penalty=penalty, early_stopping=stopping)
    given: dict[str, Any] = {"stop_token_ids": (END,), "temperature": 0.0, "logprobs": 0} | changes
    return request(name, prompt, beams=beams, n=n or width, **given)


def answers_of(completion: Completion, penalty: float = 1.0) -> list[tuple[list[int], float]]:
    """Tokens and scores, in the order of the choices."""
    found = []
    for choice in sorted(completion.tokens):
        tokens = completion.tokens[choice]
        logprob = sum(token.logprob or 0.0 for token in tokens)
        found.append((completion.token_ids(choice), logprob / len(tokens) ** penalty))
    return found


def expected(body: GenerateRequest) -> list[tuple[list[int], float]]:
    """As the reference has it."""
    return searched(
        lambda tokens: fake_logits(tokens, VOCAB_SIZE),
        body.token_ids,
        body.sampling,
        body.sampling.stop_token_ids,
    )


def assert_right(completion: Completion, body: GenerateRequest) -> None:
    """The same answers, in the same order, with the same scores."""
    assert completion.ended is not None
    assert completion.ended.error_code == ""
    beams = body.sampling.beams
    assert beams is not None
    ours, theirs = answers_of(completion, beams.length_penalty), expected(body)
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
    for (_, score), (_, wanted) in zip(ours, theirs, strict=True):
        assert math.isclose(score, wanted, rel_tol=1e-5, abs_tol=1e-5)


def assert_empty(engine: Engine) -> None:
    """Every block is back."""
    pool = engine.placement.pool
    assert engine.check_invariants() == []
    assert pool.leases == frozenset()
    assert pool.num_available == pool.num_blocks
    assert engine.table.num_searches == 0


@pytest.mark.parametrize("seed", range(30))
def test_a_search_finds_what_the_reference_finds(seed: int) -> None:
    chance = random.Random(seed)
    engine = small_engine(small_replica(40), max_batch_tokens=8)
    body = search(
        "a",
        [chance.randrange(7) for _ in range(chance.randrange(1, 6))],
        width=(width := chance.choice([2, 3])),
        n=chance.randrange(1, width + 1),
        max_tokens=chance.randrange(1, 9),
        min_tokens=0,
        length_penalty=chance.choice([-1.0, 0.0, 0.5, 1.0, 2.0]),
        early_stopping=chance.choice(STOPS),
    )
    engine.apply(Submit(body))
    assert_right(run_until_ended(engine, ["a"])["a"], body)
    assert_empty(engine)


def test_ends_do_not_come_before_min_tokens() -> None:
    engine = small_engine(small_replica(40))
    body = search("a", [1, 2, 3], width=3, max_tokens=8, min_tokens=5)
    engine.apply(Submit(body))
    completion = run_until_ended(engine, ["a"])["a"]
    assert_right(completion, body)
    assert all(len(tokens) > 5 for tokens, _ in answers_of(completion))


def test_nothing_is_told_before_the_end_and_then_all_in_one_frame() -> None:
    engine = small_engine(small_replica(40))
    engine.apply(Submit(search("a", [1, 2, 3], width=2, max_tokens=6)))
    for _ in range(100):
        frame = step(engine)
        if frame.tokens:
            assert {event.choice for event in frame.tokens} == {0, 1}
            assert [ended.request_id for ended in frame.ended] == ["a"]
            return
    raise AssertionError("nothing was told")


def test_with_every_token_is_said_how_many_all_of_the_beams_have_got() -> None:
    engine = small_engine(small_replica(40))
    body = search("a", [1, 2, 3], width=3, n=1, max_tokens=6, stop_token_ids=())
    engine.apply(Submit(body))
    told: list[int] = []
    for _ in range(100):
        frame = step(engine)
        told += [each.num_tokens for each in frame.searched]
        if frame.ended:
            assert told == [3, 6, 9, 12, 15, 18]
            return
    raise AssertionError("it did not end")


def test_a_search_beside_others_changes_neither() -> None:
    engine = small_engine(small_replica(60), max_num_seqs=8, max_batch_tokens=8)
    bodies = [search(f"b{i}", [i, 2, 3], width=2 + i % 2, max_tokens=6) for i in range(3)]
    plain = [request(f"p{i}", [i, 5], max_tokens=8, n=2) for i in range(2)]
    for body in [*bodies, *plain]:
        engine.apply(Submit(body))
    found = run_until_ended(engine, [body.request_id for body in [*bodies, *plain]])
    for body in bodies:
        assert_right(found[body.request_id], body)
    for body in plain:
        for choice in range(2):
            assert found[body.request_id].token_ids(choice) == expected_tokens(body, choice)
    assert_empty(engine)


def test_a_step_with_room_for_some_of_the_beams_computes_the_others_in_the_next() -> None:
    engine = small_engine(small_replica(60), max_batch_tokens=2, max_num_seqs=2)
    body = search("a", [1, 2, 3, 4, 5], width=3, max_tokens=6)
    engine.apply(Submit(body))
    assert_right(run_until_ended(engine, ["a"])["a"], body)
    assert_empty(engine)


def test_a_search_that_loses_its_blocks_starts_over_and_finds_the_same() -> None:
    engine = small_engine(small_replica(11), max_batch_tokens=8, max_num_seqs=8)
    older = request("p", [1, 2, 3, 4], max_tokens=16)
    body = search("a", [4, 5, 6], width=3, max_tokens=6, stop_token_ids=())
    engine.apply(Submit(older))
    engine.apply(Submit(body))
    num_begun = 0
    was_searching = False
    completions = {"p": Completion(), "a": Completion()}
    for _ in range(300):
        collect(step(engine), completions)
        found = engine.table.get("a")
        searching = found is not None and found.search is not None
        num_begun += searching and not was_searching
        was_searching = searching
        if all(completion.ended for completion in completions.values()):
            break
    assert num_begun > 1
    assert_right(completions["a"], body)
    assert completions["p"].token_ids() == expected_tokens(older)
    assert_empty(engine)


def test_a_pool_of_just_the_blocks_that_are_asked_for_is_enough() -> None:
    """Two tokens a block: 2 shared, 3 of each beam's own, 1 planned in vain."""
    for width, num_blocks in ((2, 2 + 2 * 3 + 1), (3, 2 + 3 * 3 + 1)):
        engine = small_engine(small_replica(num_blocks), max_batch_tokens=8, max_num_seqs=8)
        body = search("a", [4, 5, 6, 1, 2], width=width, max_tokens=6, stop_token_ids=())
        engine.apply(Submit(body))
        assert_right(run_until_ended(engine, ["a"])["a"], body)
        too_few = small_engine(small_replica(num_blocks - 1))
        too_few.apply(Submit(body))
        ended = run_until_ended(too_few, ["a"])["a"].ended
        assert ended is not None
        assert ended.error_code == "out_of_blocks"


def test_a_cancelled_search_leaves_no_block() -> None:
    for num_steps in range(1, 8):
        engine = small_engine(small_replica(40))
        engine.apply(Submit(search("a", [1, 2, 3], width=3, max_tokens=8, stop_token_ids=())))
        for _ in range(num_steps):
            step(engine)
        engine.apply(Cancel("a"))
        ended = run_until_ended(engine, ["a"])["a"].ended
        assert ended is not None
        assert ended.error_code == "cancelled"
        assert_empty(engine)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"width": 1}, "beams.width"),
        ({"width": 17}, "beams.width"),
        ({"n": 3}, "n"),
        ({"temperature": 0.5}, "temperature"),
        ({"top_p": 0.5}, "top_p"),
        ({"top_k": 3}, "top_k"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"logit_bias": {1: 1.0}}, "logit_bias"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"length_penalty": 11.0}, "length_penalty"),
        ({"stop_token_ids": tuple(range(9))}, "number of stop_token_ids"),
    ],
)
def test_what_does_not_go_with_beams_is_refused_by_name(
    changes: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        search("a", [1], **({"n": 1} | changes)).sampling.check(1000)
    assert refused.value.param == param


def test_a_vocabulary_too_small_for_the_candidates_is_refused() -> None:
    engine = small_engine(small_replica(60))
    engine.apply(Submit(search("a", [1], width=4, n=1)))
    ended = run_until_ended(engine, ["a"])["a"].ended
    assert ended is not None
    assert ended.error_code == "invalid_request"


def test_an_export_gives_the_candidates_of_the_first_token() -> None:
    engine = small_engine(small_replica(40))
    engine.apply(Submit(search("a", [1, 2, 3], width=3, mode=PrefillMode.EXPORT)))
    for _ in range(20):
        for event in step(engine).tokens:
            assert event.choice == 0
            assert event.finish_reason is None
            assert len(event.token.top) == 6
            return
    raise AssertionError("no first token")
