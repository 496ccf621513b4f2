"""Steps that are launched before the last one's tokens are read."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.commands import (
    Cancel,
    ChoiceToken,
    Deliver,
    Finish,
    GenerateRequest,
    PrefillMode,
    Seed,
    Submit,
)
from engine.offline.queue import Completion, collect
from engine.runner.model_runner import LaunchingRunner
from engine.step.engine import Engine
from tests.engine.runner.lazy_runner import LazyRunner, lazy_replica
from tests.engine.step.engine_scenario import (
    VirtualClock,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

PROMPT = [1, 2, 3]


def lazy_engine(num_blocks: int = 64, **given: Any) -> tuple[Engine, LazyRunner]:
    replica, runner = lazy_replica(num_blocks, given.pop("eos_token_ids", ()))
    return small_engine(replica, **{"max_batch_tokens": 16, **given}), runner


def submit(engine: Engine, *bodies: GenerateRequest) -> None:
    for body in bodies:
        engine.apply(Submit(body))


def run_until_in_flight(engine: Engine, runner: LazyRunner, num_launched: int = 2) -> None:
    """Until the last step that was launched has not been read."""
    while runner.num_launched < num_launched:
        step(engine)


def assert_empty(engine: Engine) -> None:
    pool = engine.placement.pool
    assert (pool.leases, pool.num_available) == (frozenset(), pool.num_blocks)
    assert engine.is_idle


def test_which_runners_launch() -> None:
    replica, runner = lazy_replica()
    assert isinstance(runner, LaunchingRunner)
    assert not isinstance(small_replica().runner, LaunchingRunner)
    assert replica.runner is runner


def test_every_step_is_launched_before_the_tokens_of_the_last_are_read() -> None:
    engine, runner = lazy_engine()
    body = request("a", PROMPT, max_tokens=6)
    submit(engine, body)
    tokens = run_until_ended(engine, ["a"])["a"].token_ids()
    assert tokens == expected_tokens(body)
    assert runner.log == [
        "forward",
        "launch 0 of 1",
        "launch 1 of 1",
        "read 0",
        "launch 2 of 1",
        "read 1",
        "launch 3 of 1",
        "read 2",
        "launch 4 of 1",
        "read 3",
        "read 4",
    ]


def test_tokens_come_with_the_step_after_the_launch_and_until_then_there_is_work() -> None:
    engine, runner = lazy_engine()
    submit(engine, request("a", PROMPT, max_tokens=3))
    counts = []
    while engine.has_work:
        counts.append((len(step(engine).tokens), runner.num_launched))
    assert counts == [(1, 0), (0, 1), (1, 2), (1, 2), (0, 2)]
    assert_empty(engine)


SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.5, "seed": 11},
    {"temperature": 0.8, "top_k": 3, "seed": 2},
    {"top_p": 0.7, "min_p": 0.05, "n": 3},
]


@pytest.mark.parametrize("eos_token_ids", [(), (0,), (2, 5)])
def test_tokens_are_those_of_an_engine_that_waits(eos_token_ids: tuple[int, ...]) -> None:
    bodies = [
        request(f"{i}", [i % 2] * (1 + i), max_tokens=3 + 4 * i, **sampling)
        for i, sampling in enumerate(SAMPLING)
    ]
    bodies.append(request("stop", PROMPT, max_tokens=30, stop_token_ids=(4,), temperature=1.9))
    ids = [body.request_id for body in bodies]
    waiting = small_engine(small_replica(64, eos_token_ids), max_batch_tokens=16, max_num_seqs=8)
    running, runner = lazy_engine(eos_token_ids=eos_token_ids, max_num_seqs=8)
    for engine in (waiting, running):
        submit(engine, *bodies)
    expected, found = run_until_ended(waiting, ids), run_until_ended(running, ids)
    for request_id in ids:
        assert found[request_id].tokens == expected[request_id].tokens
        assert found[request_id].finish_reasons == expected[request_id].finish_reasons
        assert found[request_id].ended.usage == expected[request_id].ended.usage
    assert runner.num_launched > 3
    step(running)
    assert_empty(running)


def test_a_sequence_that_surely_ends_has_no_row_in_the_next_step() -> None:
    engine, runner = lazy_engine()
    submit(engine, request("a", PROMPT, max_tokens=3), request("b", PROMPT[:2], max_tokens=5))
    run_until_ended(engine, ["a", "b"])
    launches = [line for line in runner.log if line.startswith("launch")]
    assert launches == [
        "launch 0 of 2",
        "launch 1 of 2",
        "launch 2 of 1",
        "launch 3 of 1",
    ]


@pytest.mark.parametrize(
    "sampling", [{"frequency_penalty": 0.5}, {"logprobs": 1}, {"logit_bias": {3: 2.0}}]
)
def test_rows_that_need_the_host_are_not_launched(sampling: dict[str, Any]) -> None:
    engine, runner = lazy_engine()
    body = request("a", PROMPT, max_tokens=4, **sampling)
    submit(engine, body)
    assert run_until_ended(engine, ["a"])["a"].token_ids() == expected_tokens(body)
    assert runner.log == ["forward"] * 4


def test_a_text_that_may_end_from_now_on_runs_ahead_from_now_on() -> None:
    engine, runner = lazy_engine(eos_token_ids=(0, 1, 2, 3, 4, 5))
    submit(engine, request("a", PROMPT, max_tokens=9, min_tokens=4))
    tokens = run_until_ended(engine, ["a"])["a"].token_ids()
    assert tokens[:4] == [6] * 4
    assert runner.log[:5] == ["forward"] * 4 + ["launch 0 of 1"]


def test_a_request_that_arrives_is_admitted_once_the_step_in_flight_has_landed() -> None:
    engine, runner = lazy_engine()
    late = request("b", [1, 1], max_tokens=6)
    submit(engine, request("a", PROMPT, max_tokens=12))
    run_until_in_flight(engine, runner)
    submit(engine, late)
    del runner.log[:]
    assert run_until_ended(engine, ["a", "b"])["b"].token_ids() == expected_tokens(late)
    assert runner.log[:4] == ["read 1", "forward", "launch 2 of 2", "launch 3 of 2"]


def test_a_queue_behind_full_seats_stops_nobody() -> None:
    engine, runner = lazy_engine(max_num_seqs=1)
    submit(engine, request("a", PROMPT, max_tokens=6), request("b", PROMPT, max_tokens=2))
    run_until_ended(engine, ["a", "b"])
    assert runner.log[:4] == ["forward", "launch 0 of 1", "launch 1 of 1", "read 0"]


def test_a_prompt_that_was_computed_elsewhere_joins_without_a_landing() -> None:
    engine, runner = lazy_engine()
    submit(engine, request("a", PROMPT, max_tokens=12))
    run_until_in_flight(engine, runner)
    submit(engine, request("b", PROMPT, max_tokens=12, mode=PrefillMode.REMOTE))
    assert [reserved.request_id for reserved in step(engine).reserved] == ["b"]
    engine.apply(Deliver("b", 0, 2))
    first = run_until_ended_alone("b")
    engine.apply(Seed("b", [ChoiceToken(0, first)]))
    step(engine)
    assert runner.log[-4:] == ["launch 2 of 1", "read 1", "launch 3 of 2", "read 2"]


def run_until_ended_alone(request_id: str) -> Any:
    """The first token of the prompt."""
    engine = small_engine()
    submit(engine, request(request_id, PROMPT, max_tokens=1))
    return run_until_ended(engine, [request_id])[request_id].tokens[0][0]


def test_blocks_of_a_sequence_that_ended_are_not_given_out_while_its_step_is_in_flight() -> None:
    engine, runner = lazy_engine(num_blocks=8)
    submit(engine, request("a", PROMPT, max_tokens=9))
    run_until_in_flight(engine, runner)
    pool = engine.placement.pool
    held = pool.num_blocks - pool.num_available
    engine.apply(Cancel("a"))
    assert engine.check_invariants() == []
    assert len(engine.table) == 0
    assert pool.num_available == pool.num_blocks - held
    assert not engine.is_idle
    frame = step(engine)
    assert (frame.tokens, runner.log[-1]) == ([], "read 1")
    assert_empty(engine)


def test_a_token_behind_the_end_of_a_text_is_dropped_and_its_blocks_come_back() -> None:
    alone = expected_tokens(request("a", PROMPT, max_tokens=8))
    engine, runner = lazy_engine(eos_token_ids=(alone[3],))
    submit(engine, request("a", PROMPT, max_tokens=8))
    completions = run_until_ended(engine, ["a"])
    length = alone.index(alone[3]) + 1
    assert completions["a"].token_ids() == alone[:length]
    assert completions["a"].ended.usage.completion_tokens == length
    assert engine.placement.pool.leases != frozenset()
    assert engine.has_work
    assert step(engine).tokens == []
    assert runner.log[-1] == f"read {runner.num_launched - 1}"
    assert_empty(engine)


def test_a_choice_that_is_finished_from_outside_says_nothing_more() -> None:
    engine, runner = lazy_engine()
    body = request("a", PROMPT, max_tokens=9, n=3)
    completions = {"a": Completion()}
    submit(engine, body)
    while runner.num_launched < 3:
        collect(step(engine), completions)
    given = len(completions["a"].token_ids(1))
    engine.apply(Finish("a", [1]))
    while not completions["a"].ended:
        collect(step(engine), completions)
    assert completions["a"].token_ids(1) == expected_tokens(body, 1)[:given]
    assert completions["a"].token_ids(2) == expected_tokens(body, 2)
    step(engine)
    assert_empty(engine)


def test_a_deadline_ends_a_request_in_flight() -> None:
    clock = VirtualClock()
    engine, runner = lazy_engine(clock=clock)
    other = request("b", [1], max_tokens=9)
    submit(engine, request("a", PROMPT, max_tokens=9, timeout_ms=50.0), other)
    run_until_in_flight(engine, runner)
    clock.now_s += 1.0
    frame = step(engine)
    assert [ended.error_code for ended in frame.ended] == ["deadline_exceeded"]
    assert {event.request_id for event in frame.tokens} == {"b"}
    given = run_until_ended(engine, ["b"])["b"].token_ids()
    assert given == expected_tokens(other)[-len(given) :]
    assert_empty(engine)


def test_a_tight_pool_preempts_between_flights() -> None:
    engine, runner = lazy_engine(num_blocks=8)
    bodies = [request(name, [i, 1, 0], max_tokens=9) for i, name in enumerate("abc")]
    submit(engine, *bodies)
    completions = {body.request_id: Completion() for body in bodies}
    num_preempted = 0
    while not all(completion.ended for completion in completions.values()):
        collect(step(engine), completions)
        num_preempted += any(s.num_generated for _, s in engine.table.waiting())
    assert num_preempted > 0
    for body in bodies:
        assert completions[body.request_id].token_ids() == expected_tokens(body)
    assert runner.num_launched > 5
    step(engine)
    assert_empty(engine)


def test_a_launch_that_fails_ends_its_requests_and_the_step_in_flight_still_lands() -> None:
    engine, runner = lazy_engine()
    short = request("short", PROMPT, max_tokens=3)
    submit(engine, request("a", PROMPT, max_tokens=9), short)
    completions = {"a": Completion(), "short": Completion()}
    while runner.num_launched < 2:
        collect(step(engine), completions)
    runner.refuses = True
    collect(step(engine), completions)
    assert completions["a"].ended is not None
    assert completions["a"].ended.error_code == "internal_error"
    assert completions["short"].token_ids() == expected_tokens(short)  # its last was in flight
    assert runner.log[-1] == "read 1"
    assert_empty(engine)
    runner.refuses = False
    submit(engine, again := request("again", PROMPT))
    assert run_until_ended(engine, ["again"])["again"].token_ids() == expected_tokens(again)


def test_a_first_launch_that_fails_ends_its_requests() -> None:
    engine, runner = lazy_engine()
    runner.refuses = True
    submit(engine, request("a", PROMPT, max_tokens=9))
    ended = run_until_ended(engine, ["a"])["a"].ended
    assert ended.error_code == "internal_error"
    assert_empty(engine)


def test_a_landing_that_fails_ends_its_requests_and_what_ran_ahead_is_dropped() -> None:
    engine, runner = lazy_engine()
    submit(engine, request("a", PROMPT, max_tokens=9))
    run_until_in_flight(engine, runner)
    runner.lost.add(1)
    assert [ended.error_code for ended in step(engine).ended] == ["internal_error"]
    assert engine.has_work
    assert step(engine).is_empty
    assert runner.log[-1] == "read 2"
    assert_empty(engine)
    submit(engine, body := request("b", PROMPT))
    assert run_until_ended(engine, ["b"])["b"].token_ids() == expected_tokens(body)


def test_logits_that_are_not_numbers_end_their_request_only() -> None:
    engine, runner = lazy_engine()
    bodies = {name: request(name, [i, 2], max_tokens=9) for i, name in enumerate("ab")}
    tokens = {name: expected_tokens(body) for name, body in bodies.items()}
    runner.poisoned_token = next(token for token in tokens["a"][:-1] if token not in tokens["b"])
    submit(engine, *bodies.values())
    completions = run_until_ended(engine, ["a", "b"])
    last = tokens["a"].index(runner.poisoned_token)
    assert completions["a"].ended.error_code == "internal_error"
    assert completions["a"].token_ids() == tokens["a"][: last + 1]
    assert completions["b"].token_ids() == tokens["b"]
