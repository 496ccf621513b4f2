"""LOCAL requests: the same tokens whatever stands beside them, and no block left behind."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from cluster.errors import ContextTooLong, InvalidRequest, OutOfBlocks, SplitserveError, status_of
from cluster.generation import FinishReason, Usage
from engine.contract.commands import Cancel, GenerateRequest, Inspect, Submit
from engine.contract.messages import Frame
from engine.memory.block_pool import BlockState
from engine.offline.queue import generate
from engine.process.fake_runner import FakeRunner
from tests.engine.step.engine_scenario import (
    ROOT,
    VirtualClock,
    check,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

PROMPTS = ([1, 2, 3], [1, 2, 3, 4, 5], [6], [1, 2, 3, 4, 6, 0], [5, 5, 5, 5])


def run(engine: Any, bodies: list[GenerateRequest]) -> Any:
    for body in bodies:
        engine.apply(Submit(body))
        check(engine)
    completions = run_until_ended(engine, [body.request_id for body in bodies])
    pool = engine.placement.pool
    assert pool.num_available == pool.num_blocks
    assert pool.leases == frozenset()
    return completions


@pytest.mark.parametrize("max_batch_tokens", [1, 2, 3, 64])
@pytest.mark.parametrize("num_blocks", [5, 8, 64])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_tokens_do_not_depend_on_chunks_neighbours_preemption_or_cache(
    max_batch_tokens: int, num_blocks: int, prefix_cache: bool
) -> None:
    engine = small_engine(
        small_replica(num_blocks), max_batch_tokens=max_batch_tokens, prefix_cache=prefix_cache
    )
    bodies = [request(str(i), list(p), seed=i, n=1 + i % 3) for i, p in enumerate(PROMPTS)]
    completions = run(engine, bodies)
    for body in bodies:
        for choice in range(body.sampling.n):
            given = completions[body.request_id].token_ids(choice)
            assert given == expected_tokens(body, choice)
    if num_blocks == 5 and max_batch_tokens > 1:
        assert engine.load.now().num_preemptions > 0


def test_penalties_survive_preemption() -> None:
    engine = small_engine(small_replica(5))
    bodies = [
        request(str(i), [1, 2, i], max_tokens=6, frequency_penalty=1.5, repetition_penalty=1.4)
        for i in range(3)
    ]
    completions = run(engine, bodies)
    assert engine.load.now().num_preemptions > 0
    for body in bodies:
        assert completions[body.request_id].token_ids() == expected_tokens(body)


def test_a_second_prompt_computes_only_what_the_first_did_not() -> None:
    replica = small_replica(16)
    engine = small_engine(replica)
    runner = replica.runner
    assert isinstance(runner, FakeRunner)
    run(engine, [request("first", [1, 2, 3, 4, 5], max_tokens=1)])
    before = runner.num_tokens
    completions = run(engine, [request("second", [1, 2, 3, 4, 6, 6], max_tokens=1)])
    assert runner.num_tokens - before == 2
    assert completions["second"].ended.usage == Usage(6, 1, 4)


def test_a_prompt_that_is_cached_in_full_still_computes_its_last_block() -> None:
    engine = small_engine(small_replica(16))
    bodies = [request(name, [1, 2, 3, 4], max_tokens=3) for name in ("first", "second")]
    run(engine, bodies[:1])
    completions = run(engine, bodies[1:])
    assert completions["second"].token_ids() == expected_tokens(bodies[1])
    assert completions["second"].ended.usage.cached_tokens == 2


def test_generated_tokens_are_cached_for_the_next_turn() -> None:
    engine = small_engine(small_replica(16))
    first = request("first", [1, 2, 3], max_tokens=4)
    reply = run(engine, [first])["first"].token_ids()
    second = request("second", [1, 2, 3, *reply, 0], max_tokens=1)
    assert run(engine, [second])["second"].ended.usage.cached_tokens == 6


def test_tenants_with_other_roots_share_nothing() -> None:
    engine = small_engine(small_replica(16))
    run(engine, [request("first", [1, 2, 3, 4, 5])])
    other = GenerateRequest(
        request_id="second",
        token_ids=[1, 2, 3, 4, 5],
        sampling=request("x", [1]).sampling,
        cache_root=bytes(reversed(ROOT)),
        timeout_ms=math.inf,
    )
    assert run(engine, [other])["second"].ended.usage.cached_tokens == 0


def test_three_choices_share_the_prompts_blocks() -> None:
    engine = small_engine(small_replica(16), max_batch_tokens=64)
    engine.apply(Submit(request("a", [1, 2, 3, 4, 5, 6, 0], n=3)))
    step(engine)
    pool = engine.placement.pool
    assert pool.count(BlockState.ACTIVE) == 4
    step(engine)  # each writes its second token: two copy the partial block, the last one owns it
    assert pool.count(BlockState.ACTIVE) == 3 + 3


def test_events_tell_the_start_every_token_and_one_end() -> None:
    clock = VirtualClock()
    engine = small_engine(clock=clock, max_batch_tokens=2)
    body = request("a", [1, 2, 3], max_tokens=2)
    engine.apply(Submit(body))
    clock.now_s += 0.5
    frames = [step(engine)]
    clock.now_s += 0.25
    frames += [step(engine), step(engine)]
    assert [len(frame.started) for frame in frames] == [1, 0, 0]
    events = [event for frame in frames for event in frame.tokens]
    assert [event.token.token_id for event in events] == expected_tokens(body)
    assert [event.finish_reason for event in events] == [None, FinishReason.LENGTH]
    [ended] = [ended for frame in frames for ended in frame.ended]
    assert (ended.error_code, ended.usage) == ("", Usage(3, 2, 0))
    assert (ended.queue_ms, ended.prefill_ms) == (500.0, 250.0)
    assert step(engine).is_empty


def test_a_choice_ends_with_a_stop_token_or_the_models_end_of_text() -> None:
    body = request("a", [1, 2, 3], max_tokens=5, seed=1)
    tokens = expected_tokens(body)
    index = next(i for i, t in enumerate(tokens) if t not in tokens[:i] and i > 0)
    for changes, eos in (
        ({"stop_token_ids": (tokens[index],)}, ()),
        ({}, (tokens[index],)),
        ({"stop_token_ids": (tokens[index],), "ignore_eos": True}, (tokens[index],)),
    ):
        engine = small_engine(small_replica(eos_token_ids=eos))
        stopped = request("a", [1, 2, 3], max_tokens=5, seed=1, **changes)
        completion = run(engine, [stopped])["a"]
        assert completion.token_ids() == tokens[: index + 1]
        assert completion.finish_reasons == {0: FinishReason.STOP}
    engine = small_engine(small_replica(eos_token_ids=(tokens[index],)))
    ignoring = request("a", [1, 2, 3], max_tokens=5, seed=1, ignore_eos=True)
    assert run(engine, [ignoring])["a"].token_ids() == tokens


@pytest.mark.parametrize("mode_of_end", ["cancel", "deadline"])
def test_a_request_can_end_at_any_step_and_its_neighbour_goes_on(mode_of_end: str) -> None:
    body = request("stays", [3, 2, 1], max_tokens=6)
    for num_steps in range(8):
        clock = VirtualClock()
        engine = small_engine(small_replica(16), clock=clock, max_batch_tokens=3)
        engine.apply(Submit(request("goes", [1, 2, 3, 4, 5], max_tokens=8, n=2, timeout_ms=50.0)))
        engine.apply(Submit(body))
        frames = [step(engine) for _ in range(num_steps)]
        if mode_of_end == "cancel":
            engine.apply(Cancel("goes"))
            engine.apply(Cancel("goes"))
        else:
            clock.now_s += 0.05
        frames += [step(engine) for _ in range(10)]
        codes = {e.request_id: e.error_code for frame in frames for e in frame.ended}
        expected = {"cancel": "cancelled", "deadline": "deadline_exceeded"}[mode_of_end]
        assert codes == {"goes": expected, "stays": ""}
        assert tokens_of(frames, "stays") == expected_tokens(body)
        assert engine.placement.pool.num_available == 16


@pytest.mark.parametrize(("asked_s", "words"), [(30.0, "deadline of 30.0 s"), (None, "time")])
def test_a_late_request_is_told_the_limit_that_was_asked_for(
    asked_s: float | None, words: str
) -> None:
    clock = VirtualClock()
    engine = small_engine(clock=clock)
    body = msgspec.structs.replace(request("a", [1, 2, 3], timeout_ms=29_731.4), asked_s=asked_s)
    engine.apply(Submit(body))
    clock.now_s += 29.8
    (ended,) = engine.step().ended
    assert ended.error_code == "deadline_exceeded"
    assert words in ended.error_message
    assert "29731" not in ended.error_message


def tokens_of(frames: list[Frame], request_id: str) -> list[int]:
    events = [event for frame in frames for event in frame.tokens]
    return [event.token.token_id for event in events if event.request_id == request_id]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (request("a", []), InvalidRequest),
        (request("a", [7]), InvalidRequest),
        (request("a", [-1]), InvalidRequest),
        (request("a", [1], temperature=9.0), InvalidRequest),
        (request("a", [1] * 12, max_tokens=6), OutOfBlocks),
        (request("a", [1] * 12, max_tokens=5), ContextTooLong),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_at_once(
    body: GenerateRequest, error: type[SplitserveError]
) -> None:
    engine = small_engine(small_replica(8))
    engine.apply(Submit(body))
    [ended] = step(engine).ended
    assert ended.error_code == status_of(error("")).code
    assert ended.error_message
    assert engine.is_idle


def test_a_request_that_fills_the_whole_pool_is_served() -> None:
    body = request("a", [1, 2, 3] * 4, max_tokens=4)
    assert run(small_engine(small_replica(8)), [body])["a"].token_ids() == expected_tokens(body)


def test_the_second_of_two_requests_with_one_id_is_ignored() -> None:
    engine = small_engine()
    bodies = [request("a", [1, 2, 3]), request("a", [4])]
    completions = run(engine, bodies)
    assert completions["a"].token_ids() == expected_tokens(bodies[0])


def test_an_inspection_shows_the_cache_and_finds_nothing_wrong() -> None:
    engine = small_engine()
    run(engine, [request("a", [1, 2, 3, 4, 5])])
    engine.apply(Inspect(9, check_invariants=True, snapshot_cache=True))
    [inspection] = step(engine).inspections
    assert (inspection.token, inspection.violations) == (9, [])
    assert [block.token_ids for block in inspection.snapshot[:2]] == [[1, 2], [3, 4]]


def test_the_cache_changes_of_all_frames_add_up_to_the_snapshot() -> None:
    engine, known = small_engine(), set[bytes]()
    for i, prompt in enumerate(PROMPTS):
        engine.apply(Submit(request(str(i), list(prompt), seed=i)))
    while not engine.is_idle:
        change = step(engine).cache
        if change is not None:
            known |= {block.name for block in change.stored}
            assert known >= set(change.removed)
            known -= set(change.removed)
    assert known == {block.name for block in engine.placement.cache.snapshot()}


def test_offline_use_returns_completions_and_raises_errors() -> None:
    engine = small_engine()
    body = request("a", [1, 2])
    assert generate(engine, [body])[0].token_ids() == expected_tokens(body)
    with pytest.raises(InvalidRequest):
        generate(engine, [request("b", [])])


def test_an_engine_that_cannot_go_on_does_not_ask_for_another_step() -> None:
    engine = small_engine()
    assert not engine.has_work
    engine.apply(Submit(request("a", [1], max_tokens=1)))
    assert engine.has_work
    step(engine)
    step(engine)
    assert not engine.has_work
