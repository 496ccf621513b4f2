"""Texts with drafts are those without, to the last token; what drafts save is steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from msgspec import structs

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.generation import FinishReason
from cluster.speculation import wish_of
from engine.contract.commands import GenerateRequest, Submit
from engine.contract.draft_numbers import NO_DRAFTS, DrafterKind, DraftNumbers
from engine.offline.queue import Completion, collect
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.engine import Engine
from engine.step.speculation import may_change_texts, why_none
from tests.engine.step.engine_scenario import (
    check,
    expected_tokens,
    request,
    small_engine,
    small_replica,
    step,
)
from tests.engine.step.guessing import TickingClock, oracles

ALWAYS_RIGHT, ALWAYS_WRONG, NOW_AND_THEN = 0.0, 1.0, 0.3


def drafting_engine(mistakes: float = ALWAYS_RIGHT, *, num_blocks: int = 64, **more: Any) -> Engine:
    return small_engine(
        small_replica(num_blocks, more.pop("eos_token_ids", ())),
        clock=TickingClock(),
        make_guesser=oracles(mistakes, shortest=MAX_DRAFT_TOKENS),
        **({"max_batch_tokens": 32, "max_num_seqs": 8} | more),
    )


def predicted(body: GenerateRequest) -> GenerateRequest:
    """With the answer of its first choice as the prediction."""
    return structs.replace(body, prediction=expected_tokens(body))


def answers(engine: Engine, bodies: list[GenerateRequest]) -> tuple[list[Completion], int]:
    """And in how many steps."""
    completions = {body.request_id: Completion() for body in bodies}
    for body in bodies:
        engine.apply(Submit(body))
    for num_steps in range(1, 1000):
        collect(step(engine), completions)
        if all(completion.ended for completion in completions.values()):
            assert engine.placement.pool.leases == frozenset()
            return list(completions.values()), num_steps
    raise AssertionError(f"not ended: {completions}")


@pytest.mark.parametrize("mistakes", [ALWAYS_RIGHT, NOW_AND_THEN, ALWAYS_WRONG])
@pytest.mark.parametrize("num_seqs", [1, 16])
def test_tokens_are_those_without_drafts_alone_and_sixteen_at_once(
    num_seqs: int, mistakes: float
) -> None:
    bodies = [
        predicted(request(str(i), [i % 5, 1, 2], max_tokens=20, temperature=i % 3, seed=i))
        for i in range(num_seqs)
    ]
    engine = drafting_engine(mistakes, num_blocks=256, max_batch_tokens=64, max_num_seqs=16)
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]


def test_a_drafter_that_is_right_makes_several_tokens_of_a_step() -> None:
    body = predicted(request("a", [1, 2, 3], max_tokens=40))
    _, num_steps = answers(drafting_engine(), [body])
    assert num_steps <= 8  # the prompt, a plain step to measure, 16 + 1 of the others each


def test_a_drafter_that_is_wrong_costs_no_token_and_no_step() -> None:
    body = predicted(request("a", [1, 2, 3], max_tokens=40))
    found, num_steps = answers(drafting_engine(ALWAYS_WRONG), [body])
    assert found[0].token_ids() == expected_tokens(body)
    assert num_steps <= 41


SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "truncated": {"temperature": 1.3, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    "bias": {"logit_bias": {2: 1.5, 3: -1.0}},
    "logprobs": {"logprobs": 3, "frequency_penalty": 0.3},
    "plain logprobs": {"logprobs": 3},
}


@pytest.mark.parametrize("mistakes", [ALWAYS_RIGHT, NOW_AND_THEN])
@pytest.mark.parametrize("kind", SAMPLING)
def test_every_way_to_sample_gives_the_same_tokens_and_logprobs(kind: str, mistakes: float) -> None:
    body = predicted(request("a", [1, 2, 3], max_tokens=24, **SAMPLING[kind]))
    [plain], _ = answers(small_engine(small_replica(64)), [body])
    [found], _ = answers(drafting_engine(mistakes), [body])
    assert found.token_ids() == expected_tokens(body)
    assert found.tokens == plain.tokens  # logprobs too


def test_each_choice_has_drafts_of_its_own() -> None:
    body = predicted(request("a", [1, 2, 3], max_tokens=12, n=3))
    [found], _ = answers(drafting_engine(), [body])
    for choice in range(3):
        assert found.token_ids(choice) == expected_tokens(body, choice)


@pytest.mark.parametrize("place", range(9))
def test_a_stop_token_in_the_midst_of_a_draft_ends_the_text_there(place: int) -> None:
    body = predicted(request("a", [1, 2, 3], max_tokens=20, temperature=0.0))
    answer = expected_tokens(body)
    stop = answer[place]
    body = structs.replace(body, sampling=structs.replace(body.sampling, stop_token_ids=(stop,)))
    [found], _ = answers(drafting_engine(), [body])
    assert found.token_ids() == answer[: answer.index(stop) + 1]
    assert found.finish_reasons == {0: FinishReason.STOP}


@pytest.mark.parametrize("min_tokens", [0, 3, 7, 15])
def test_min_tokens_bans_the_end_in_rows_of_a_draft_as_well(min_tokens: int) -> None:
    eos = (4,)
    body = request("a", [1, 2, 3], max_tokens=20, min_tokens=min_tokens)
    [plain], _ = answers(small_engine(small_replica(64, eos)), [body])
    body = structs.replace(body, prediction=plain.token_ids())
    for mistakes in (ALWAYS_RIGHT, NOW_AND_THEN):
        [found], _ = answers(drafting_engine(mistakes, eos_token_ids=eos), [body])
        assert (found.tokens, found.finish_reasons) == (plain.tokens, plain.finish_reasons)


@pytest.mark.parametrize("max_tokens", range(1, 20))
def test_max_tokens_within_a_run_is_the_end(max_tokens: int) -> None:
    body = request("a", [1, 2, 3], max_tokens=max_tokens)
    longer = request("a", [1, 2, 3], max_tokens=40)
    body = structs.replace(body, prediction=expected_tokens(longer))
    [found], _ = answers(drafting_engine(), [body])
    assert found.token_ids() == expected_tokens(body)
    assert found.finish_reasons == {0: FinishReason.LENGTH}
    assert found.ended is not None
    assert found.ended.usage.completion_tokens == max_tokens


def test_blocks_of_what_was_computed_are_cached_as_without_drafts() -> None:
    """And no block with the KV of a guess: the next request would get its tokens wrong."""
    snapshots = []
    for engine in (small_engine(small_replica(64)), drafting_engine(NOW_AND_THEN)):
        body = predicted(request("a", [1, 2, 3, 4, 5], max_tokens=21))
        answers(engine, [body])
        snapshots.append({block.name for block in engine.placement.cache.snapshot()})
        again = request("b", [*body.token_ids, *expected_tokens(body)], max_tokens=6)
        [found], _ = answers(engine, [again])
        assert found.token_ids() == expected_tokens(again)
        assert found.ended is not None
        assert found.ended.usage.cached_tokens == 24
    assert snapshots[0] == snapshots[1]


def test_blocks_of_guesses_are_given_back_after_each_step() -> None:
    engine = drafting_engine(ALWAYS_WRONG)
    engine.apply(Submit(predicted(request("a", [1, 2, 3], max_tokens=30))))
    for _ in range(12):
        step(engine)
        [lease] = engine.placement.pool.leases
        [sequence] = next(iter(engine.table)).sequences
        assert len(lease.block_ids) == -(-sequence.num_computed // 2)


def test_drafts_give_way_where_blocks_lack_and_nobody_is_preempted_for_them() -> None:
    """Ten blocks of two tokens: two sequences of ten tokens each fill them."""
    engine = drafting_engine(num_blocks=10, prefix_cache=False)
    bodies = [predicted(request(str(i), [i, 1], max_tokens=9)) for i in range(2)]
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]
    assert engine.load.now().num_preemptions == 0


def test_drafts_stay_within_the_tokens_of_a_step() -> None:
    engine = drafting_engine(max_batch_tokens=5)
    body = predicted(request("a", [1, 2, 3], max_tokens=30))
    found, num_steps = answers(engine, [body])
    assert found[0].token_ids() == expected_tokens(body)
    assert 30 // 5 <= num_steps <= 10


def test_what_became_of_drafts_is_told_with_the_request_and_in_the_frames() -> None:
    engine, numbers = drafting_engine(ALWAYS_RIGHT), list[DraftNumbers]()
    body = predicted(request("a", [1, 2, 3], max_tokens=19))
    completion = {"a": Completion()}
    engine.apply(Submit(body))
    while completion["a"].ended is None:
        frame = step(engine)
        numbers += [] if frame.draft_numbers is None else [frame.draft_numbers]
        collect(frame, completion)
    ended = completion["a"].ended
    assert ended.draft_tokens == ended.accepted_draft_tokens > 10
    assert ended.usage.completion_tokens == 19
    assert ended.usage.accepted_prediction_tokens == ended.accepted_draft_tokens
    assert ended.usage.rejected_prediction_tokens == 0
    places = numbers[-1].by_drafter[DrafterKind.NGRAM]
    assert sum(places.tried) == sum(places.kept) == ended.draft_tokens
    assert numbers[-1].num_tokens == numbers[-1].num_steps + ended.draft_tokens
    drafts = ended.drafts
    assert drafts.tried == drafts.kept == places.tried[: len(drafts.tried)]
    assert (drafts.num_steps, drafts.num_tokens) == (numbers[-1].num_steps, numbers[-1].num_tokens)
    assert drafts.gain > 2.0, "a step takes as long with drafts as without"
    assert numbers[-1].plain_s > 2.0 * numbers[-1].took_s > 0.0


def test_who_has_no_draft_is_told_of_the_steps_that_it_shared_and_of_no_draft() -> None:
    bodies = [
        predicted(request("a", [1, 2, 3], max_tokens=19)),
        request("b", [4, 5, 6], max_tokens=19),
    ]
    (guessed, plain), _ = answers(drafting_engine(ALWAYS_RIGHT), bodies)
    assert guessed.ended is not None and plain.ended is not None
    assert guessed.ended.draft_tokens > 10
    drafts = plain.ended.drafts
    assert (drafts.tried, drafts.kept) == ([], [])
    assert drafts.num_steps == drafts.num_tokens > 0, "one token of each step"


def test_an_answer_without_drafts_has_nothing_to_tell_of_them() -> None:
    engine = small_engine(small_replica(64), speculation="off")
    [found], _ = answers(engine, [request("a", [1, 2, 3], max_tokens=9)])
    assert found.ended is not None and found.ended.drafts == NO_DRAFTS


def test_rejected_tokens_of_a_prediction_are_counted_and_are_no_completion() -> None:
    body = predicted(request("a", [1, 2, 3], max_tokens=12))
    [found], _ = answers(drafting_engine(ALWAYS_WRONG), [body])
    assert found.ended is not None
    usage = found.ended.usage
    assert usage.completion_tokens == 12
    assert (usage.accepted_prediction_tokens, found.ended.accepted_draft_tokens) == (0, 0)
    assert usage.rejected_prediction_tokens == found.ended.draft_tokens > 0


def test_a_step_of_drafts_that_fails_is_computed_again_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = drafting_engine()
    bodies = [predicted(request(str(i), [i, 1], max_tokens=12)) for i in range(3)]
    runner = engine._computation._runner
    forward = runner.forward

    def fails_on_drafts(batch: Any) -> Any:
        if len(batch.logit_rows) > len(batch.context_lens):
            raise RuntimeError("no drafts today")
        return forward(batch)

    monkeypatch.setattr(runner, "forward", fails_on_drafts)
    found, _ = answers(engine, bodies)
    assert [done.token_ids() for done in found] == [expected_tokens(body) for body in bodies]


def test_a_draft_that_no_token_comes_of_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = drafting_engine()
    bodies = [predicted(request(str(i), [i, 1], max_tokens=12)) for i in range(2)]
    runner = engine._computation._runner
    forward = runner.forward

    def is_no_number_in_the_first(batch: Any) -> Any:
        logits = forward(batch)
        if len(batch.logit_rows) > len(batch.context_lens):
            logits[1] = float("nan")
        return logits

    monkeypatch.setattr(runner, "forward", is_no_number_in_the_first)
    completions = {body.request_id: Completion() for body in bodies}
    for body in bodies:
        engine.apply(Submit(body))
    while not all(done.ended for done in completions.values()):
        collect(step(engine), completions)
    codes = sorted(done.ended.error_code for done in completions.values() if done.ended)
    assert "internal_error" in codes
    for body, done in zip(bodies, completions.values(), strict=True):
        given = done.token_ids()
        assert given == expected_tokens(body)[: len(given)]
    check(engine)


def test_nothing_is_guessed_where_it_was_not_asked_for_or_texts_could_change() -> None:
    replica = small_replica()
    for speculation in ("auto", "off"):
        engine = small_engine(replica, speculation=speculation)
        answers(engine, [request("a", [1, 1, 1, 1], max_tokens=4)])
        assert engine.why_no_drafts is not None
    with pytest.raises(ConfigError, match="speculation is ngram, which this engine cannot do"):
        small_engine(replica, speculation="ngram")
    with pytest.raises(ConfigError, match="speculation is heads, which this engine cannot do"):
        small_engine(replica, speculation="heads")
    assert EngineOptions().speculation == "auto"


def test_on_a_gpu_guesses_are_made_where_they_are_asked_for_by_name() -> None:
    """Its kernels are not batch-invariant: `auto` leaves texts as they are."""
    replica = small_replica()
    on_gpu = replace(replica, kv=torch.empty_like(replica.kv, device="meta"))
    why = why_none(on_gpu, wish_of("auto"))
    assert why is not None
    assert "--speculation ngram guesses all the same" in why
    by_name = EngineOptions(speculation="ngram").speculation_wish
    assert why_none(on_gpu, by_name) is None
    assert may_change_texts(on_gpu, by_name)
    assert not may_change_texts(replica, by_name)
    assert why_none(replace(on_gpu, num_homes=2), by_name) is not None
    by_a_model = wish_of("org/smaller")
    assert why_none(on_gpu, by_a_model) is None
    assert may_change_texts(on_gpu, by_a_model)
    assert why_none(on_gpu, wish_of("off")) == "--speculation off"


def test_where_a_gpu_has_no_room_for_drafts_the_engine_starts_without_and_says_why() -> None:
    full = replace(small_replica(), why_no_drafts="rows do not fit")
    engine = small_engine(full, speculation="ngram")
    assert engine.why_no_drafts == "rows do not fit"
    answers(engine, [request("a", [1, 1, 1, 1], max_tokens=4)])
