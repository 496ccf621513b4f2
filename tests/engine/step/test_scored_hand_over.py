"""A prompt whose own tokens are scored, computed in one engine and decoded in another."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.generation import PromptToken
from engine.contract.commands import (
    ChoiceToken,
    Deliver,
    PrefillLocally,
    PrefillMode,
    ReleaseExport,
    Seed,
    Submit,
)
from engine.contract.messages import Frame
from engine.offline.queue import Completion, collect, generate
from engine.step.engine import Engine
from engine.step.requests.lifecycle import SequenceState
from tests.engine.step.engine_scenario import (
    check,
    copy_kv,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

PROMPT = [1, 5, 2, 6, 3, 3, 0, 4, 1]
NUM_BLOCKS = 5
"""Of the prompt."""
TOP = 2


def alone(prompt: list[int], **changes: Any) -> list[PromptToken]:
    """Scores by an engine that does it all."""
    body = request("alone", prompt, prompt_logprobs=TOP, **changes)
    (completion,) = generate(small_engine(small_replica(32)), [body])
    return completion.prompt


def exported(engine: Engine, prompt: list[int], **changes: Any) -> list[Frame]:
    body = request("a", prompt, mode=PrefillMode.EXPORT, prompt_logprobs=TOP, **changes)
    engine.apply(Submit(body))
    frames = [step(engine)]
    while engine.has_work:
        frames.append(step(engine))
    return frames


def blocks_of(frames: list[Frame]) -> dict[int, int]:
    return {
        prefilled.span.first_index + at: block_id
        for frame in frames
        for prefilled in frame.prefilled
        for at, block_id in enumerate(prefilled.span.block_ids)
    }


def seed_of(frames: list[Frame]) -> Seed:
    return Seed("a", [ChoiceToken(e.choice, e.token) for f in frames for e in f.tokens])


def tokens_of(frame: Frame, name: str) -> list[int]:
    return [event.token.token_id for event in frame.tokens if event.request_id == name]


def scores_of(frames: list[Frame]) -> list[PromptToken]:
    return [token for frame in frames for scored in frame.scored for token in scored.tokens]


@pytest.mark.parametrize("max_batch_tokens", [1, 4, 64])
def test_an_export_scores_its_prompt_chunk_by_chunk_before_the_first_token(max_batch_tokens):
    engine = small_engine(small_replica(16), max_batch_tokens=max_batch_tokens)
    frames = exported(engine, PROMPT)
    assert scores_of(frames) == alone(PROMPT)
    [told] = [at for at, frame in enumerate(frames) if frame.tokens]
    assert max(at for at, frame in enumerate(frames) if frame.scored) <= told
    assert sorted(blocks_of(frames)) == list(range(NUM_BLOCKS))


def test_what_an_export_has_cached_is_computed_again_for_its_scores():
    engine = small_engine(small_replica(16))
    for _ in range(2):
        frames = exported(engine, PROMPT)
        assert scores_of(frames) == alone(PROMPT)
        assert frames[0].started[0].cached_tokens == 0
        engine.apply(ReleaseExport("a"))
        step(engine)
    assert engine.placement.pool.num_available == 16


@pytest.mark.parametrize("n", [1, 3])
def test_a_prompt_that_was_scored_elsewhere_is_not_scored_again(n):
    source, target = small_replica(16), small_replica(16)
    frames = exported(small_engine(source), PROMPT, n=n)
    engine = small_engine(target)
    body = request("a", PROMPT, mode=PrefillMode.REMOTE, prompt_logprobs=TOP, n=n)
    engine.apply(Submit(body))
    [reserved] = step(engine).reserved
    blocks = blocks_of(frames)
    copy_kv(source.kv, target.kv, [(blocks[i], reserved.block_ids[i]) for i in range(NUM_BLOCKS)])
    for command in (seed_of(frames), Deliver("a", 0, NUM_BLOCKS)):
        engine.apply(command)
        check(engine)
    completion = run_until_ended(engine, ["a"])["a"]
    assert completion.prompt == []
    for choice in range(n):
        assert completion.token_ids(choice) == expected_tokens(body, choice)


@pytest.mark.parametrize("num_delivered", [0, 2, NUM_BLOCKS])
@pytest.mark.parametrize("num_scored", [0, 1, 4, 5, len(PROMPT) - 1])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_when_its_source_is_lost_the_scores_that_are_missing_are_made_here(
    num_delivered: int, num_scored: int, prefix_cache: bool
) -> None:
    source, target = small_replica(16), small_replica(16)
    blocks = blocks_of(exported(small_engine(source), PROMPT))
    engine = small_engine(target, prefix_cache=prefix_cache)
    body = request("a", PROMPT, mode=PrefillMode.REMOTE, prompt_logprobs=TOP)
    engine.apply(Submit(body))
    [reserved] = step(engine).reserved
    pairs = [(blocks[i], reserved.block_ids[i]) for i in range(num_delivered)]
    copy_kv(source.kv, target.kv, pairs)
    for command in (Deliver("a", 0, num_delivered), PrefillLocally("a", num_scored)):
        engine.apply(command)
        check(engine)
    completion = run_until_ended(engine, ["a"])["a"]
    assert completion.prompt == alone(PROMPT)[num_scored:]
    assert completion.token_ids() == expected_tokens(body)
    assert engine.placement.pool.num_available == 16


def test_blocks_that_others_share_by_now_are_left_alone_when_the_prompt_is_scored_here():
    """Delivered blocks are named at once: another request with that prompt decodes on them."""
    source, target = small_replica(16), small_replica(32)
    blocks = blocks_of(exported(small_engine(source), PROMPT))
    engine = small_engine(target, max_batch_tokens=1)
    body = request("a", PROMPT, mode=PrefillMode.REMOTE, prompt_logprobs=TOP)
    engine.apply(Submit(body))
    [reserved] = step(engine).reserved
    pairs = [(blocks[i], reserved.block_ids[i]) for i in range(NUM_BLOCKS)]
    copy_kv(source.kv, target.kv, pairs)
    engine.apply(Deliver("a", 0, NUM_BLOCKS))
    other = request("other", PROMPT, max_tokens=4)
    engine.apply(Submit(other))
    first = tokens_of(step(engine), "other")
    shared = set(engine.table.get("other").leader.blocks.block_ids)
    assert shared & set(reserved.block_ids)
    engine.apply(PrefillLocally("a"))
    check(engine)
    assert engine.table.get("a").leader.lease is None
    completions = run_until_ended(engine, ["a", "other"])
    assert completions["a"].prompt == alone(PROMPT)
    assert completions["a"].token_ids() == expected_tokens(body)
    assert first + completions["other"].token_ids() == expected_tokens(other)


def test_a_scored_prompt_that_is_cached_here_whole_receives_nothing_but_its_first_token():
    prompt = PROMPT[:8]
    engine = small_engine(small_replica(16))
    generate(engine, [request("before", prompt)])
    body = request("a", prompt, mode=PrefillMode.REMOTE, prompt_logprobs=TOP)
    engine.apply(Submit(body))
    [reserved] = step(engine).reserved
    assert reserved.first_block == len(reserved.block_ids) == 4
    frames = exported(small_engine(small_replica(16)), prompt, first_block=4)
    assert blocks_of(frames) == {}
    assert scores_of(frames) == alone(prompt)
    engine.apply(seed_of(frames))
    completion = run_until_ended(engine, ["a"])["a"]
    assert (completion.prompt, completion.token_ids()) == ([], expected_tokens(body))


@pytest.mark.parametrize("seed", range(10))
def test_scored_prompts_that_lose_their_source_beside_others_in_a_small_pool(seed: int) -> None:
    """Preempted, queued again, never told twice."""
    chance = random.Random(seed)
    engine = small_engine(small_replica(12), max_batch_tokens=chance.choice([2, 5]))
    bodies, told = {}, {}
    for number in range(20):
        mode = chance.choice([PrefillMode.LOCAL, PrefillMode.REMOTE])
        prompt = chance.choices(range(2), k=chance.randint(1, 9))
        scores = {"prompt_logprobs": TOP} if chance.random() < 0.7 else {}
        body = request(f"r{number}", prompt, mode=mode, max_tokens=chance.randint(1, 5), **scores)
        bodies[body.request_id] = body
        told[body.request_id] = chance.randrange(len(prompt)) if mode.is_remote else 0
        engine.apply(Submit(body))
    completions = {name: Completion() for name in bodies}
    while not all(completion.ended for completion in completions.values()):
        collect(step(engine), completions)
        for name in [name for name in bodies if chance.random() < 0.1]:
            request_here = engine.table.get(name)
            if request_here is not None and request_here.is_remote:
                is_queued = request_here.leader.life.state is SequenceState.QUEUED
                told[name] = 0 if is_queued else told[name]
                engine.apply(PrefillLocally(name, told[name]))
                check(engine)
    for name, body in bodies.items():
        assert completions[name].token_ids() == expected_tokens(body)
        if body.sampling.prompt_logprobs is not None:
            assert completions[name].prompt == alone(body.token_ids)[told[name] :]
        else:
            assert completions[name].prompt == []
    assert engine.placement.pool.num_available == 12
