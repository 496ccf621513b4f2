"""An engine whose blocks have two homes: where sequences go, what they share, who gives way."""

from __future__ import annotations

from cluster.block_hash import chain_names, pack_tokens
from cluster.block_homes import BlockHomes
from cluster.wire import load_from_wire, load_to_wire
from engine.contract.commands import Submit
from engine.offline.queue import Completion, collect
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    BLOCK_SIZE,
    ROOT,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    step,
)
from tests.engine.step.homes_scenario import HomesRunner, homes_replica

HOMES = BlockHomes(2, 6)


def homes_engine(**options: int) -> tuple[Engine, HomesRunner]:
    replica, runner, _ = homes_replica(HOMES)
    return small_engine(replica, **({"max_batch_tokens": 16, "max_num_seqs": 8} | options)), runner


def home_of(engine: Engine, request_id: str) -> int:
    found = engine.table.get(request_id)
    assert found is not None
    return found.leader.blocks.home


def test_requests_are_spread_over_the_homes_and_stay_there() -> None:
    engine, runner = homes_engine()
    bodies = {name: request(name, [ord(name) % 7] * 3, max_tokens=4) for name in "abcd"}
    for body in bodies.values():
        engine.apply(Submit(body))
    ended = run_until_ended(engine, list(bodies))
    for name, body in bodies.items():
        assert ended[name].token_ids(0) == expected_tokens(body)
    assert runner.rows == [[6, 6], *[[2, 2]] * 3]


def test_a_prompt_goes_where_its_beginning_is_cached_and_is_cached_at_both_in_time() -> None:
    engine, _ = homes_engine()
    engine.apply(Submit(request("first", [1, 2, 3, 4, 5], max_tokens=1)))
    run_until_ended(engine, ["first"])
    cached = []
    for name in "abc":
        engine.apply(Submit(request(name, [1, 2, 3, 4, 5], max_tokens=7)))
        (started,) = step(engine).started
        cached.append((home_of(engine, name), started.cached_tokens))
    # the third would leave its home less than half of what the other has
    assert cached == [(0, 4), (0, 4), (1, 0)]
    names = chain_names(pack_tokens([1, 2, 3, 4]), parent=ROOT, block_size_tokens=BLOCK_SIZE)
    cache = engine.placement.cache
    found = [cache.match(names, 2, home=home) for home in range(2)]
    assert [HOMES.home_of(block) for blocks in found for block in blocks] == [0, 0, 1, 1]


def test_a_full_home_takes_blocks_from_its_own_sequences_while_the_other_has_some() -> None:
    engine, _ = homes_engine()
    bodies = {"a": request("a", [1] * 3, max_tokens=7)}
    bodies |= {"b": request("b", [2] * 4, max_tokens=1)}
    bodies |= {"c": request("c", [3] * 5, max_tokens=7)}
    for body in bodies.values():
        engine.apply(Submit(body))
    completions = {name: Completion() for name in bodies}
    while not engine.load.now().num_preemptions:
        collect(step(engine), completions)
    assert completions["b"].ended
    assert [home_of(engine, "a"), engine.placement.pool.available_at(1)] == [0, 6]
    collect(step(engine), completions)
    assert home_of(engine, "c") == 1  # it starts over where there is room
    while not all(completion.ended for completion in completions.values()):
        collect(step(engine), completions)
    for name, body in bodies.items():
        assert completions[name].token_ids(0) == expected_tokens(body)


def test_choices_of_a_request_fork_and_copy_at_its_home() -> None:
    engine, _ = homes_engine()
    body = request("n", [1, 2, 3], max_tokens=4, n=3)
    engine.apply(Submit(request("other", [5] * 2, max_tokens=2)))
    engine.apply(Submit(body))
    ended = run_until_ended(engine, ["other", "n"])["n"]
    assert [ended.token_ids(choice) for choice in range(3)] == [
        expected_tokens(body, choice) for choice in range(3)
    ]


def test_a_request_that_one_home_cannot_hold_is_refused_at_once() -> None:
    engine, _ = homes_engine()
    engine.apply(Submit(request("long", [1] * 10, max_tokens=4)))
    (refused,) = step(engine).ended
    assert refused.error_code == "out_of_blocks"


def test_prompts_at_both_homes_are_computed_side_by_side() -> None:
    engine, runner = homes_engine(max_batch_tokens=4)
    engine.apply(Submit(request("a", [1] * 8, max_tokens=1)))
    engine.apply(Submit(request("b", [2] * 8, max_tokens=1)))
    run_until_ended(engine, ["a", "b"])
    assert runner.rows == [[2, 2]] * 4


def test_what_is_left_is_told_by_home_and_a_sequence_has_the_most_of_it() -> None:
    engine, _ = homes_engine()
    engine.apply(Submit(request("a", [1] * 5, max_tokens=4)))
    step(engine)
    load = engine.load.now()
    assert load.home_blocks_left == (3, 6)
    assert (load.free_blocks, load.room_blocks) == (9, 6)
    assert load_from_wire(load_to_wire(load)) == load


def test_an_engine_with_one_home_tells_of_the_whole_pool_alone() -> None:
    load = small_engine().load.now()
    assert (load.home_blocks_left, load.room_blocks) == ((), 8)


def test_each_home_has_seats_of_its_own() -> None:
    engine, _ = homes_engine(max_num_seqs=4)
    for name in "abcde":
        engine.apply(Submit(request(name, [ord(name) % 7], max_tokens=6)))
        step(engine)
    assert [home_of(engine, name) for name in "abcd"] == [0, 1, 1, 0]  # what grew has less left
    assert engine.table.seats_taken(2) == [2, 2]
    assert engine.load.now().num_waiting == 1
