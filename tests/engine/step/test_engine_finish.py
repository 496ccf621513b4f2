"""Choices that somebody outside has seen the end of, such as a stop string."""

from __future__ import annotations

import pytest

from cluster.generation import GeneratedToken
from engine.contract.commands import ChoiceToken, Finish, PrefillMode, ReleaseExport, Seed, Submit
from engine.memory.block_pool import BlockState
from engine.offline.queue import Completion, collect
from engine.step.engine import Engine
from engine.step.requests.lifecycle import SequenceState
from tests.engine.step.engine_scenario import (
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

PROMPT = [1, 2, 3]


def assert_empty(engine: Engine) -> None:
    step(engine)
    pool = engine.placement.pool
    assert (pool.leases, pool.num_available) == (frozenset(), pool.num_blocks)


def seeds(*choices: int) -> Seed:
    return Seed("a", [ChoiceToken(choice, GeneratedToken(1)) for choice in choices])


def test_a_finished_choice_frees_its_blocks_and_the_others_go_on_unchanged() -> None:
    engine = small_engine(small_replica(32))
    body = request("a", PROMPT, n=3, max_tokens=12)
    engine.apply(Submit(body))
    completions = {"a": Completion()}
    while len(completions["a"].token_ids(1)) < 5:
        collect(step(engine), completions)
    active = engine.placement.pool.count(BlockState.ACTIVE)
    engine.apply(Finish("a", [1]))
    assert engine.placement.pool.count(BlockState.ACTIVE) < active
    while completions["a"].ended is None:
        collect(step(engine), completions)
    assert completions["a"].ended.error_code == ""
    assert completions["a"].ended.usage.completion_tokens == 12 + 5 + 12
    for choice, num_tokens in ((0, 12), (1, 5), (2, 12)):
        given = completions["a"].token_ids(choice)
        assert given == expected_tokens(body, choice)[:num_tokens]
    assert_empty(engine)


def test_with_its_last_choice_the_request_ends_with_usage_and_without_an_error() -> None:
    engine = small_engine(small_replica(32))
    engine.apply(Submit(request("first", PROMPT + PROMPT)))
    run_until_ended(engine, ["first"])
    engine.apply(Submit(request("a", PROMPT + PROMPT, n=2, max_tokens=12)))
    completions = {"a": Completion()}
    while len(completions["a"].token_ids(1)) < 3:
        collect(step(engine), completions)
    engine.apply(Finish("a", [0, 1]))
    engine.apply(Finish("a", [1]))
    [ended] = step(engine).ended
    assert (ended.error_code, ended.usage.prompt_tokens) == ("", 6)
    assert (ended.usage.completion_tokens, ended.usage.cached_tokens) == (6, 4)
    assert step(engine).ended == []
    assert_empty(engine)


def test_a_preempted_choice_can_be_finished_while_it_waits() -> None:
    engine = small_engine(small_replica(5), max_batch_tokens=2)
    body = request("a", [5], n=2, max_tokens=8)
    engine.apply(Submit(body))
    completions = {"a": Completion()}
    while not engine.table.counts[SequenceState.QUEUED] or not completions["a"].tokens:
        collect(step(engine), completions)
    [waiting] = [s for _, s in engine.table.waiting()]
    engine.apply(Finish("a", [waiting.choice]))
    while completions["a"].ended is None:
        collect(step(engine), completions)
    other = 1 - waiting.choice
    assert completions["a"].token_ids(other) == expected_tokens(body, other)
    assert len(completions["a"].token_ids(waiting.choice)) < 8
    assert_empty(engine)


def test_a_choice_that_its_seed_completes_for_the_router_takes_no_part_in_decoding() -> None:
    engine = small_engine()
    engine.apply(Submit(request("a", PROMPT, n=2, mode=PrefillMode.REMOTE)))
    step(engine)
    engine.apply(seeds(0, 1))
    engine.apply(Finish("a", [0]))
    assert step(engine).ended == []
    engine.apply(Finish("a", [1]))
    [ended] = step(engine).ended
    assert (ended.error_code, ended.usage.completion_tokens) == ("", 2)
    assert_empty(engine)


def test_blocks_of_a_finished_request_wait_for_reads_in_flight() -> None:
    reading = {"a"}
    engine = small_engine(has_reads=lambda request_id: request_id in reading)
    engine.apply(Submit(request("a", PROMPT, mode=PrefillMode.REMOTE)))
    step(engine)
    engine.apply(seeds(0))
    engine.apply(Finish("a", [0]))
    assert [ended.error_code for ended in step(engine).ended] == [""]
    assert engine.placement.pool.count(BlockState.RECEIVING) == 2
    reading.clear()
    assert_empty(engine)


@pytest.mark.parametrize("mode", [PrefillMode.LOCAL, PrefillMode.REMOTE])
def test_a_finish_before_the_first_token_is_ignored(mode: PrefillMode) -> None:
    engine = small_engine()
    engine.apply(Submit(request("a", PROMPT, mode=mode)))
    engine.apply(Finish("a", [0]))
    engine.apply(Finish("a", [7]))
    engine.apply(Finish("unknown", [0]))
    assert step(engine).ended == []
    assert len(engine.table) == 1


def test_an_export_is_its_readers_to_end() -> None:
    engine = small_engine()
    engine.apply(Submit(request("a", PROMPT, mode=PrefillMode.EXPORT)))
    while engine.has_work:
        step(engine)
    engine.apply(Finish("a", [0]))
    assert step(engine).ended == []
    engine.apply(ReleaseExport("a"))
    assert [ended.error_code for ended in step(engine).ended] == [""]
    assert_empty(engine)
