"""Logprobs of the prompt's own tokens: from every row, told once, whatever batch or cache."""

import random

import pytest

from cluster.generation import PromptToken
from cluster.models.footprint import SCORED_ROWS
from engine.contract.commands import PrefillMode, Submit
from engine.offline.queue import Completion, generate
from engine.process.fake_runner import fake_logits
from engine.step.planning.chunk_budget import ChunkBudget
from engine.step.planning.plan import Budget, RunningView
from tests.engine.step.engine_scenario import (
    VOCAB_SIZE,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

ROUNDING = {"rel": 1e-5, "abs": 1e-6}
"""logsumexp and log_softmax add in float32, in different orders."""
PROMPT = [1, 5, 2, 6, 3, 3, 0, 4, 1]


def oracle(prompt: list[int], num_top: int) -> list[PromptToken]:
    """Each token by the logits of all tokens before it, without pool, batch or chunks."""
    scores = []
    for index in range(1, len(prompt)):
        logits = fake_logits(prompt[:index], VOCAB_SIZE)
        logprobs = logits.log_softmax(-1)
        top = logprobs.topk(num_top)
        scores.append(
            PromptToken(
                prompt[index],
                float(logprobs[prompt[index]]),
                int((logits > logits[prompt[index]]).sum()) + 1,
                tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
            )
        )
    return scores


def assert_scored(completion: Completion, prompt: list[int], num_top: int) -> None:
    expected = oracle(prompt, num_top)
    assert [(t.token_id, t.rank) for t in completion.prompt] == [
        (t.token_id, t.rank) for t in expected
    ]
    for ours, theirs in zip(completion.prompt, expected, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, **ROUNDING)
        assert [i for i, _ in ours.top] == [i for i, _ in theirs.top]
        assert [p for _, p in ours.top] == pytest.approx([p for _, p in theirs.top], **ROUNDING)


@pytest.mark.parametrize("max_batch_tokens", [1, 4, 64])
def test_every_token_of_a_prompt_is_scored_once_in_chunks_of_any_size(max_batch_tokens):
    engine = small_engine(max_batch_tokens=max_batch_tokens)
    body = request("a", PROMPT, prompt_logprobs=3)
    (completion,) = generate(engine, [body])
    assert_scored(completion, PROMPT, 3)
    assert completion.token_ids() == expected_tokens(body)


def test_scores_come_before_the_first_token():
    engine = small_engine(max_batch_tokens=4)
    engine.apply(Submit(request("a", PROMPT, prompt_logprobs=0, max_tokens=1)))
    frames = [step(engine) for _ in range(3)]
    assert [[s.first_index for s in frame.scored] for frame in frames] == [[1], [5], []]
    assert [len(frame.tokens) for frame in frames] == [0, 0, 1]


def test_a_cached_prefix_is_computed_again_where_its_tokens_are_to_be_scored():
    engine = small_engine(small_replica(num_blocks=32))
    for name in ("first", "again"):
        (completion,) = generate(engine, [request(name, PROMPT, prompt_logprobs=1)])
        assert_scored(completion, PROMPT, 1)
        assert completion.ended is not None and completion.ended.usage.cached_tokens == 0
    (plain,) = generate(engine, [request("plain", PROMPT)])
    assert plain.ended is not None and plain.ended.usage.cached_tokens == 8


def test_a_prompt_of_one_token_has_nothing_to_score():
    (completion,) = generate(small_engine(), [request("a", [4], prompt_logprobs=2)])
    assert completion.prompt == []


def test_the_choices_of_a_request_share_one_scored_prompt():
    body = request("a", PROMPT, prompt_logprobs=2, n=3, max_tokens=2)
    (completion,) = generate(small_engine(), [body])
    assert_scored(completion, PROMPT, 2)
    for choice in range(3):
        assert completion.token_ids(choice) == expected_tokens(body, choice)


def test_scores_hold_beside_other_requests_and_through_preemption():
    numbers = random.Random(0)
    engine = small_engine(small_replica(num_blocks=10), max_batch_tokens=5)
    bodies = [
        request(
            f"r{i}",
            numbers.choices(range(VOCAB_SIZE), k=numbers.randint(1, 9)),
            max_tokens=numbers.randint(1, 8),
            prompt_logprobs=numbers.choice((None, 0, 2)),
        )
        for i in range(60)
    ]
    for body in bodies:
        engine.apply(Submit(body))
    completions = run_until_ended(engine, [body.request_id for body in bodies])
    for body in bodies:
        done = completions[body.request_id]
        assert done.token_ids() == expected_tokens(body)
        if body.sampling.prompt_logprobs is None:
            assert done.prompt == []
        else:
            assert_scored(done, body.token_ids, body.sampling.prompt_logprobs)
    assert engine.load.now().num_preemptions


@pytest.mark.parametrize("mode", [PrefillMode.CACHED, PrefillMode.KEEP])
def test_a_prompt_that_nobody_answers_is_not_scored_but_refused(mode):
    engine = small_engine()
    engine.apply(Submit(request("a", PROMPT, mode=mode, prompt_logprobs=1)))
    (ended,) = step(engine).ended
    assert ended.error_code == "invalid_request"
    assert "prompt_logprobs" in ended.error_message


def test_a_step_has_a_bounded_number_of_scored_rows_and_the_rest_of_it_is_others() -> None:
    views = [
        RunningView(
            key=(arrival, 0),
            num_remaining=50,
            is_decode=False,
            blocks_wanted=0,
            blocks_freed=0,
            is_preemptible=True,
            home=0,
            is_scored=arrival != 1,
        )
        for arrival in range(4)
    ]
    budget = Budget(max_batch_tokens=1024, max_num_seqs=8, num_available=8, seats_taken=4)
    room = ChunkBudget(budget, num_decodes=0, most_decodes=0)
    assert [room.take(view).num_tokens for view in views] == [50, 50, SCORED_ROWS - 50, 0]
    assert room.lacks_rows(views[3]) and not room.lacks_rows(views[1])
    assert room.tokens_for(views[1]) == 50


def test_a_long_prompt_that_is_scored_does_not_hold_up_a_plain_one_behind_it() -> None:
    ended: dict[bool, int] = {}
    for is_scored in (False, True):
        engine = small_engine(small_replica(num_blocks=1200), max_batch_tokens=512, max_num_seqs=8)
        scores = {"prompt_logprobs": 0} if is_scored else {}
        engine.apply(Submit(request("big", [1, 2, 3] * 300, max_tokens=1, **scores)))
        engine.step()
        engine.apply(Submit(request("late", [4, 5] * 500, max_tokens=1)))
        num_steps = 0
        while not any(item.request_id == "late" for item in engine.step().ended):
            num_steps += 1
            assert num_steps < 100
        ended[is_scored] = num_steps
    assert ended[True] <= ended[False] + 2
