"""The plan of a step whose sequences live at several homes: each home's blocks, seats and time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from engine.step.planning.chunk_budget import LEAST_TAIL, STEP_FACTOR
from engine.step.planning.plan import Budget, Offers, RunningView, StepPlan
from engine.step.planning.scheduler import schedule
from engine.step.planning.step_cost import StepCost
from tests.engine.step.planning.test_scheduler import decode, keys, prefill, waiting

COST = StepCost(base_ms=5.0, row_ms=0.5, token_ms=0.25)


def budgets(*num_available: int, **changes: Any) -> list[Budget]:
    """Of as many homes, with so many blocks left."""
    fields: dict[str, Any] = {"max_batch_tokens": 8, "max_num_seqs": 4, "seats_taken": 0}
    return [Budget(**(fields | {"num_available": n} | changes)) for n in num_available]


def anywhere(arrival: int, num_uncached: int = 4, num_homes: int = 2, **changes: Any) -> Offers:
    """It costs the same at each home."""
    (view,) = waiting(arrival, num_uncached, blocks_fresh=changes.pop("blocks_fresh", 2), **changes)
    return tuple(replace(view, home=home) for home in range(num_homes))


def chunk_tokens(plan: StepPlan) -> dict[int, int]:
    return {chunk.key[0]: chunk.num_tokens for chunk in plan.chunks}


def test_who_waits_gets_the_home_with_the_most_blocks_left() -> None:
    plan = schedule([], [anywhere(1)], budgets(5, 9))
    assert plan.admissions == {(1, 0): 1}


def test_those_admitted_in_one_step_are_spread_over_the_homes() -> None:
    plan = schedule([], [anywhere(i) for i in range(4)], budgets(9, 9))
    assert list(plan.admissions.values()) == [0, 1, 0, 1]


def test_blocks_that_a_home_has_in_its_cache_count_as_had() -> None:
    here, there = anywhere(1)
    there = replace(there, blocks_fresh=0)
    assert schedule([], [(here, there)], budgets(9, 8)).admissions == {(1, 0): 1}
    assert schedule([], [(here, there)], budgets(9, 6)).admissions == {(1, 0): 0}


def test_who_finds_half_its_prompt_cached_goes_there_unless_that_home_is_short_of_room() -> None:
    here, there = anywhere(1)
    hit = replace(there, blocks_fresh=1, num_uncached=2, num_cached=2)
    little = replace(there, blocks_fresh=1, num_uncached=3, num_cached=1)
    assert schedule([], [(here, hit)], budgets(90, 50)).admissions == {(1, 0): 1}
    assert schedule([], [(here, hit)], budgets(90, 44)).admissions == {(1, 0): 0}
    assert schedule([], [(here, little)], budgets(90, 50)).admissions == {(1, 0): 0}


def test_a_home_that_is_full_holds_up_nobody_who_fits_elsewhere() -> None:
    plan = schedule([], [anywhere(1), anywhere(2)], budgets(0, 9))
    assert plan.admissions == {(1, 0): 1, (2, 0): 1}


def test_who_fits_nowhere_waits_and_so_do_those_behind_it() -> None:
    plan = schedule([], [anywhere(1, blocks_wanted=5), anywhere(2)], budgets(4, 4))
    assert plan.is_empty


def test_the_seats_of_a_home_are_its_own() -> None:
    taken = budgets(90, 9, max_num_seqs=2)
    taken[0] = replace(taken[0], seats_taken=2)
    plan = schedule([decode(1), decode(2)], [anywhere(3), anywhere(4)], taken)
    assert plan.admissions == {(3, 0): 1, (4, 0): 1}
    assert len(plan.decodes) == 2


def test_only_sequences_at_a_full_home_are_preempted_for_one_of_it() -> None:
    running = [decode(1, blocks_wanted=1), decode(2), decode(3, home=1), decode(4, home=1)]
    plan = schedule(running, [anywhere(5)], budgets(0, 9))
    assert plan.preempted == keys(2)
    assert plan.decodes == keys(1, 3, 4)


def test_nobody_is_admitted_where_somebody_loses_its_blocks_and_elsewhere_they_are() -> None:
    running = [decode(1, blocks_wanted=1), decode(2, blocks_freed=9), decode(3, home=1)]
    plan = schedule(running, [anywhere(5)], budgets(0, 5))
    assert plan.preempted == keys(2)
    assert plan.admissions == {(5, 0): 1}
    assert schedule(running, [anywhere(5)], budgets(0, 0)).admitted == ()


def test_choices_that_no_part_has_seats_for_go_to_the_home_with_the_fewest() -> None:
    room = [replace(each, seats_taken=1) for each in budgets(*[1000] * 8, max_num_seqs=8)]
    room[5] = replace(room[5], seats_taken=0)
    running = [decode(home, home=home) for home in range(8) if home != 5]
    queue = [anywhere(100, num_homes=8, seats=16), anywhere(101, num_homes=8)]
    plan = schedule(running, queue, room)
    assert plan.admitted == keys(100, 101)
    assert plan.admissions[100, 0] == 5


def test_choices_beyond_a_homes_part_decode_side_by_side() -> None:
    running = [decode(arrival) for arrival in range(6)]
    assert len(schedule(running, [], budgets(9, 9, max_num_seqs=3)).decodes) == 6


def test_choices_wait_for_the_seats_of_all_homes_and_so_do_those_behind_them() -> None:
    room = [replace(each, seats_taken=2) for each in budgets(90, 90)]
    running = [decode(arrival, home=arrival % 2) for arrival in range(4)]
    queue = [anywhere(100, seats=5), anywhere(101)]
    assert schedule(running, queue, room).admitted == ()
    assert schedule(running, queue[1:], room).admitted == keys(101)


def test_who_needs_more_seats_than_there_are_is_admitted_alone() -> None:
    queue = [anywhere(1, seats=9), anywhere(2)]
    assert schedule([], queue, budgets(90, 90)).admitted == keys(1)


def test_one_sequence_waits_for_a_seat_of_a_homes_part() -> None:
    room = [replace(each, seats_taken=n) for each, n in zip(budgets(90, 0), (4, 0), strict=True)]
    assert schedule([decode(n) for n in range(4)], [anywhere(9)], room).admitted == ()


def test_the_last_sequence_of_a_home_waits_though_others_have_room() -> None:
    plan = schedule([decode(1, blocks_wanted=1), decode(2, home=1)], [], budgets(0, 9))
    assert plan.preempted == ()
    assert plan.decodes == keys(2)


def test_prompts_at_several_homes_get_an_equal_part_of_the_step() -> None:
    plan = schedule([prefill(1, 50), prefill(2, 50, home=1)], [], budgets(9, 9))
    assert chunk_tokens(plan) == {1: 8, 2: 8}


def test_a_home_without_tokens_left_leaves_the_next_prompt_to_another() -> None:
    plan = schedule([prefill(1, 50)], [anywhere(2), anywhere(3)], budgets(90, 9))
    assert plan.admissions == {(2, 0): 1, (3, 0): 1}
    assert chunk_tokens(plan) == {1: 8, 2: 4, 3: 4}


def test_a_chunk_at_an_idle_home_is_no_longer_than_decodes_elsewhere_can_spare() -> None:
    room = budgets(99, 99, max_batch_tokens=512, cost=COST)
    running = [decode(1), decode(2), prefill(3, 900, home=1)]
    plan = schedule(running, [], room)
    limit_ms = STEP_FACTOR * LEAST_TAIL * COST.decodes_ms(2)
    chunk_ms = COST.chunk_ms(chunk_tokens(plan)[3], 0) + COST.decodes_ms(0)
    assert limit_ms - 2 * COST.token_ms < chunk_ms <= limit_ms


@pytest.mark.parametrize(("length", "beside"), [(100, 128), (200, 200)])
def test_a_prompt_that_ends_waits_for_little_more_of_another_home_than_its_own_rows(
    length: int, beside: int
) -> None:
    room = budgets(99, 99, max_batch_tokens=512)
    running = [prefill(1, length, due_ms=1.0), prefill(2, 900, home=1, due_ms=2.0)]
    assert chunk_tokens(schedule(running, [], room)) == {1: length, 2: beside}


def test_prompts_of_one_length_end_side_by_side() -> None:
    running = [prefill(home, 200, home=home, due_ms=float(home)) for home in range(4)]
    plan = schedule(running, [], budgets(99, 99, 99, 99, max_batch_tokens=256))
    assert set(chunk_tokens(plan).values()) == {200}


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_takes_more_than_each_home_has(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        num_homes = chance.choice([1, 2, 3])
        running = [_running(chance, arrival, num_homes) for arrival in range(chance.randrange(10))]
        queue = [_waiting(chance, 100 + i, num_homes) for i in range(chance.randrange(5))]
        rooms = _rooms(chance, running, num_homes)
        plan = schedule(running, queue, rooms)
        for home, room in enumerate(rooms):
            _check_home(plan, home, room, running, queue)
        seats = sum(room.seats_taken for room in rooms)
        admitted = sum(views[0].seats for views in queue if views[0].key in plan.admissions)
        assert not admitted or not seats or seats + admitted <= sum(r.max_num_seqs for r in rooms)


def _running(chance: random.Random, arrival: int, num_homes: int) -> RunningView:
    return decode(
        arrival,
        home=chance.randrange(num_homes),
        is_decode=chance.random() < 0.7,
        num_remaining=chance.randrange(1, 12),
        blocks_wanted=chance.randrange(2),
        blocks_freed=chance.randrange(4),
        is_preemptible=chance.random() < 0.8,
    )


def _waiting(chance: random.Random, arrival: int, num_homes: int) -> Offers:
    (view,) = waiting(arrival, is_remote=chance.random() < 0.3, seats=chance.randrange(1, 4))
    wanted = [chance.randrange(1, 6) for _ in range(num_homes)]
    return tuple(
        replace(view, home=home, blocks_wanted=n, blocks_fresh=chance.randrange(n + 1))
        for home, n in enumerate(wanted)
    )


def _rooms(chance: random.Random, running: list[RunningView], num_homes: int) -> list[Budget]:
    made = budgets(*(chance.randrange(8) for _ in range(num_homes)))
    seats = Counter(view.home for view in running)
    return [replace(room, seats_taken=seats[home]) for home, room in enumerate(made)]


def _check_home(
    plan: StepPlan, home: int, room: Budget, running: list[RunningView], queue: list[Offers]
) -> None:
    own = {view.key: view for view in running if view.home == home}
    offered = {views[home].key: views[home] for views in queue}
    admitted = [offered[key] for key, at in plan.admissions.items() if at == home]
    chunks = [c for c in plan.chunks if c.key in own or c.key in {v.key for v in admitted}]
    decodes = [own[key] for key in plan.decodes if key in own]
    preempted = [own[key] for key in plan.preempted if key in own]
    grown = [*decodes, *(own[chunk.key] for chunk in chunks if chunk.key in own)]
    wanted = sum(view.blocks_wanted for view in [*grown, *admitted])
    assert wanted <= room.num_available + sum(view.blocks_freed for view in preempted)
    assert len(decodes) + sum(chunk.num_tokens for chunk in chunks) <= room.max_batch_tokens
    if preempted:
        assert any(view.is_decode and view.blocks_wanted for view in own.values())
    assert not (admitted and preempted)
    if any(view.seats == 1 for view in admitted):
        assert room.seats_taken < room.max_num_seqs
