"""A prompt computed in one engine and decoded in another; blocks are copied by the test."""

from __future__ import annotations

import pytest

from cluster.cache_change import CachedBlock
from cluster.generation import FinishReason, GeneratedToken
from engine.contract.commands import (
    Cancel,
    ChoiceToken,
    Deliver,
    PrefillLocally,
    PrefillMode,
    ReleaseExport,
    Seed,
    Submit,
)
from engine.contract.messages import Frame, Reserved
from engine.memory.block_pool import BlockState
from engine.runner.model_runner import Replica
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    VirtualClock,
    check,
    copy_kv,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

PROMPT = [1, 2, 3, 4, 5, 6, 0]


class Reads:
    """Requests with reads in flight, as an extension would tell."""

    def __init__(self) -> None:
        self.request_ids: set[str] = set()

    def __call__(self, request_id: str) -> bool:
        return request_id in self.request_ids


def reserve(engine: Engine, **changes: object) -> Reserved:
    """Submits a REMOTE request "a" and returns its reservation."""
    engine.apply(Submit(request("a", PROMPT, mode=PrefillMode.REMOTE, **changes)))  # type: ignore[arg-type]
    [reserved] = step(engine).reserved
    return reserved


def export(engine: Engine, **changes: object) -> list[Frame]:
    """Submits an EXPORT request "a" and steps until it is pinned or over."""
    engine.apply(Submit(request("a", PROMPT, mode=PrefillMode.EXPORT, **changes)))  # type: ignore[arg-type]
    frames = [step(engine)]
    while engine.has_work:
        frames.append(step(engine))
    return frames


def exported_blocks(frames: list[Frame]) -> dict[int, int]:
    """Sequence index -> block id, of everything that was announced; nothing twice."""
    blocks: dict[int, int] = {}
    for prefilled in (item for frame in frames for item in frame.prefilled):
        for offset, block_id in enumerate(prefilled.span.block_ids):
            assert prefilled.span.first_index + offset not in blocks
            blocks[prefilled.span.first_index + offset] = block_id
    return blocks


def seed_of(frames: list[Frame]) -> Seed:
    """The first tokens that an export sampled."""
    return Seed("a", [ChoiceToken(e.choice, e.token) for f in frames for e in f.tokens])


def tokens_of(frames: list[Frame], choice: int = 0) -> list[int]:
    events = [event for frame in frames for event in frame.tokens]
    return [event.token.token_id for event in events if event.choice == choice]


def apply(engine: Engine, *commands: Deliver | Seed | PrefillLocally | Cancel) -> None:
    for command in commands:
        engine.apply(command)
        check(engine)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("max_batch_tokens", [2, 3, 64])
def test_a_handed_over_prompt_goes_on_as_if_it_had_stayed(n: int, max_batch_tokens: int) -> None:
    source, target = small_replica(8), small_replica(16)
    exporting = small_engine(source, max_batch_tokens=max_batch_tokens)
    receiving = small_engine(target)
    frames = export(exporting, n=n)
    reserved = reserve(receiving, n=n)
    blocks = exported_blocks(frames)
    assert sorted(blocks) == [0, 1, 2, 3]
    copy_kv(source.kv, target.kv, [(blocks[i], reserved.block_ids[i]) for i in range(4)])
    apply(receiving, seed_of(frames), Deliver("a", 0, 4))
    completion = run_until_ended(receiving, ["a"])["a"]
    for choice in range(n):
        expected = expected_tokens(request("a", PROMPT, n=n), choice)
        assert completion.token_ids(choice) == expected
    assert completion.ended.usage.completion_tokens == 4 * n
    exporting.apply(ReleaseExport("a"))
    [ended] = step(exporting).ended
    assert ended.error_code == ""
    assert exporting.placement.pool.num_available == 8
    assert receiving.placement.pool.num_available == 16


def test_full_blocks_are_announced_as_chunks_end_and_the_partial_one_at_last() -> None:
    frames = export(small_engine(max_batch_tokens=3))
    announced = [[(p.span.first_index, p.span.num_blocks) for p in f.prefilled] for f in frames[:3]]
    assert announced == [[(0, 1)], [(1, 2)], [(3, 1)]]
    assert [len(frame.tokens) for frame in frames[:3]] == [0, 0, 1]


def test_cached_blocks_are_announced_with_the_first_chunk_and_known_ones_never() -> None:
    engine = small_engine(max_batch_tokens=2)
    export(engine)
    engine.apply(ReleaseExport("a"))
    step(engine)
    frames = export(engine, first_block=1)
    announced = [(p.span.first_index, p.span.num_blocks) for f in frames for p in f.prefilled]
    assert announced == [(1, 3)]
    assert frames[0].started[0].cached_tokens == 6


def test_an_export_is_pinned_until_its_reader_has_gone() -> None:
    engine = small_engine()
    export(engine)
    assert engine.placement.pool.count(BlockState.EXPORTED) == 4
    other = request("b", [6, 6, 6], max_tokens=3)
    engine.apply(Submit(other))
    assert run_until_ended(engine, ["b"])["b"].token_ids() == expected_tokens(other)
    assert engine.placement.pool.count(BlockState.EXPORTED) == 4
    engine.apply(ReleaseExport("a"))
    step(engine)
    assert engine.placement.pool.count(BlockState.EXPORTED) == 0


def test_an_export_whose_first_token_is_its_last_ends_at_once() -> None:
    engine = small_engine(max_batch_tokens=64)
    frames = export(engine, max_tokens=1)
    assert [e.finish_reason for f in frames for e in f.tokens] == [FinishReason.LENGTH]
    assert [e.error_code for f in frames for e in f.ended] == [""]
    assert engine.is_idle


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_a_reader_that_leaves_early_cancels_the_prompt(num_steps: int) -> None:
    engine = small_engine(max_batch_tokens=2)
    engine.apply(Submit(request("a", PROMPT, mode=PrefillMode.EXPORT)))
    for _ in range(num_steps):
        step(engine)
    engine.apply(ReleaseExport("a"))
    assert [ended.error_code for ended in step(engine).ended] == ["cancelled"]
    assert engine.placement.pool.num_available == 8


def test_an_export_past_its_deadline_is_unpinned() -> None:
    clock = VirtualClock()
    engine = small_engine(clock=clock)
    export(engine, timeout_ms=1000.0)
    clock.now_s += 1.0
    assert [ended.error_code for ended in step(engine).ended] == ["deadline_exceeded"]
    assert engine.placement.pool.num_available == 8


def test_blocks_may_arrive_in_any_order_and_more_than_once() -> None:
    source, target = small_replica(8), small_replica(8)
    frames = export(small_engine(source))
    engine = small_engine(target)
    reserved = reserve(engine)
    blocks = exported_blocks(frames)
    for index in (3, 1, 1, 0, 2):
        assert engine.load.now().num_running == 0
        copy_kv(source.kv, target.kv, [(blocks[index], reserved.block_ids[index])])
        apply(engine, Deliver("a", index, 1))
        assert step(engine).tokens == []
    apply(engine, seed_of(frames))
    completion = run_until_ended(engine, ["a"])["a"]
    assert completion.token_ids() == expected_tokens(request("a", PROMPT))


def test_a_seeded_token_is_told_at_once_and_never_again() -> None:
    source, target = small_replica(8), small_replica(8)
    frames = export(small_engine(source), logprobs=1)
    engine = small_engine(target)
    reserved = reserve(engine, logprobs=1)
    apply(engine, seed_of(frames), seed_of(frames))
    first = step(engine)
    assert [event.token for event in first.tokens] == [e.token for f in frames for e in f.tokens]
    blocks = exported_blocks(frames)
    copy_kv(source.kv, target.kv, [(blocks[i], reserved.block_ids[i]) for i in range(4)])
    apply(engine, Deliver("a", 0, 4))
    rest = [step(engine) for _ in range(4)]
    assert tokens_of([first, *rest]) == expected_tokens(request("a", PROMPT))


def test_seeds_that_end_every_choice_end_the_request_before_its_blocks_arrive() -> None:
    engine = small_engine()
    reserve(engine, max_tokens=1)
    apply(engine, Seed("a", [ChoiceToken(0, GeneratedToken(3))]))
    frame = step(engine)
    assert [event.finish_reason for event in frame.tokens] == [FinishReason.LENGTH]
    assert [ended.error_code for ended in frame.ended] == [""]
    assert engine.placement.pool.num_available == 8


def test_a_choice_whose_seed_ends_it_takes_no_part_in_decoding() -> None:
    engine = small_engine(small_replica(16))
    bodies = {"n": 2, "stop_token_ids": (3,), "max_tokens": 4}
    reserve(engine, **bodies)
    apply(
        engine,
        Seed("a", [ChoiceToken(1, GeneratedToken(3)), ChoiceToken(0, GeneratedToken(2))]),
        PrefillLocally("a"),
    )
    completion = run_until_ended(engine, ["a"])["a"]
    assert completion.token_ids(1) == [3]
    assert completion.token_ids(0)[0] == 2


@pytest.mark.parametrize("tokens", [[], [(0, 3)], [(0, 3), (2, 3)], [(0, 3), (1, 7)]])
def test_seeds_that_do_not_fit_end_their_request_only(tokens: list[tuple[int, int]]) -> None:
    engine = small_engine(small_replica(16))
    reserve(engine, n=2)
    engine.apply(Seed("a", [ChoiceToken(c, GeneratedToken(t)) for c, t in tokens]))
    assert [ended.error_code for ended in step(engine).ended] == ["internal_error"]
    assert engine.placement.pool.num_available == 16


@pytest.mark.parametrize("num_delivered", range(5))
@pytest.mark.parametrize("is_seeded", [True, False])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_prompt_whose_source_is_lost_goes_on_from_its_verified_prefix(
    num_delivered: int, is_seeded: bool, n: int, prefix_cache: bool
) -> None:
    source, target = small_replica(8), small_replica(16)
    frames = export(small_engine(source), n=n)
    engine = small_engine(target, prefix_cache=prefix_cache)
    reserved = reserve(engine, n=n)
    blocks = exported_blocks(frames)
    copy_kv(source.kv, target.kv, [(blocks[i], reserved.block_ids[i]) for i in range(4)])
    apply(engine, Deliver("a", 0, num_delivered))
    if is_seeded and num_delivered < 4:
        apply(engine, seed_of(frames))
    apply(engine, PrefillLocally("a"))
    completion = run_until_ended(engine, ["a"])["a"]
    for choice in range(n):
        expected = expected_tokens(request("a", PROMPT, n=n), choice)
        assert completion.token_ids(choice) == expected
    assert completion.ended.usage.cached_tokens == min(2 * num_delivered, 6)
    assert engine.placement.pool.num_available == 16


def test_a_prompt_found_whole_in_the_cache_needs_its_first_token_only() -> None:
    prompt = PROMPT[:6]
    replica = small_replica(16)
    engine = small_engine(replica)
    local = request("local", prompt, max_tokens=4)
    engine.apply(Submit(local))
    expected = run_until_ended(engine, ["local"])["local"].token_ids()
    engine.apply(Submit(request("a", prompt, mode=PrefillMode.REMOTE)))
    [reserved] = step(engine).reserved
    assert reserved.first_block == 3
    apply(engine, Seed("a", [ChoiceToken(0, GeneratedToken(expected[0]))]))
    assert run_until_ended(engine, ["a"])["a"].token_ids() == expected


def test_recomputing_the_end_of_a_cached_prompt_leaves_other_readers_blocks_alone() -> None:
    prompt = PROMPT[:6]
    engine = small_engine(small_replica(16))
    names = ("first", "second")
    for name in names:
        engine.apply(Submit(request(name, prompt, max_tokens=3, seed=1)))
        run_until_ended(engine, [name])
    for name in names:  # both hold the same three cached blocks, and lose their source
        engine.apply(Submit(request(name, prompt, mode=PrefillMode.REMOTE, seed=1)))
    assert len(step(engine).reserved) == 2
    apply(engine, *(PrefillLocally(name) for name in names))
    completions = run_until_ended(engine, list(names))
    expected = expected_tokens(request("x", prompt, seed=1))
    assert [completions[name].token_ids() for name in names] == [expected, expected]


def test_a_source_lost_while_the_request_still_queues_makes_it_local() -> None:
    engine = small_engine(small_replica(4))
    body = request("b", [6, 6, 6], max_tokens=3, mode=PrefillMode.REMOTE)
    reserve(engine, max_tokens=1)
    engine.apply(Submit(body))
    assert step(engine).reserved == []
    apply(engine, PrefillLocally("b"), Cancel("a"))
    assert run_until_ended(engine, ["a", "b"])["b"].token_ids() == expected_tokens(body)


@pytest.mark.parametrize("end", ["cancel", "deadline", "seed"])
def test_blocks_with_reads_in_flight_stay_out_of_use_after_their_request(end: str) -> None:
    reads, clock = Reads(), VirtualClock()
    engine = small_engine(has_reads=reads, clock=clock)
    reserved = reserve(engine, max_tokens=1, timeout_ms=1000.0)
    reads.request_ids = {"a"}
    if end == "cancel":
        apply(engine, Cancel("a"))
    elif end == "seed":
        apply(engine, Seed("a", [ChoiceToken(0, GeneratedToken(3))]))
    else:
        clock.now_s += 1.0
    assert len(step(engine).ended) == 1
    assert engine.placement.pool.count(BlockState.RECEIVING) == len(reserved.block_ids)
    reads.request_ids = set()
    step(engine)
    assert engine.placement.pool.num_available == 8


def test_a_lost_source_waits_for_reads_in_flight_before_it_computes() -> None:
    reads = Reads()
    engine = small_engine(has_reads=reads)
    reserve(engine)
    reads.request_ids = {"a"}
    apply(engine, PrefillLocally("a"))
    assert step(engine).started == []
    reads.request_ids = set()
    assert len(step(engine).started) == 1
    completion = run_until_ended(engine, ["a"])["a"]
    assert completion.token_ids() == expected_tokens(request("a", PROMPT))


def test_delivered_blocks_enter_the_cache_in_order() -> None:
    engine = small_engine()
    reserve(engine)
    apply(engine, Deliver("a", 1, 2))
    assert step(engine).cache is None
    apply(engine, Deliver("a", 0, 1))
    change = step(engine).cache
    assert change is not None
    assert [block.token_ids for block in change.stored] == [[1, 2], [3, 4], [5, 6]]
    assert isinstance(change.stored[0], CachedBlock)


def test_commands_for_requests_that_are_unknown_or_in_another_mode_do_nothing() -> None:
    engine = small_engine(small_replica(16))
    body = request("a", PROMPT)
    engine.apply(Submit(body))
    step(engine)
    for request_id in ("a", "nobody"):
        apply(engine, Deliver(request_id, 0, 4), Seed(request_id, []), PrefillLocally(request_id))
    assert run_until_ended(engine, ["a"])["a"].token_ids() == expected_tokens(body)


def test_generations_move_when_exported_slots_are_reused() -> None:
    source: Replica = small_replica(4)
    engine = small_engine(source)
    blocks = exported_blocks(export(engine))
    generations = engine.placement.pool.generations.clone()
    engine.apply(ReleaseExport("a"))
    step(engine)
    engine.apply(Submit(request("b", [6] * 6, max_tokens=1)))
    run_until_ended(engine, ["b"])
    moved = (engine.placement.pool.generations != generations).nonzero().flatten().tolist()
    assert len(moved) == 3
    assert set(moved) <= set(blocks.values())
