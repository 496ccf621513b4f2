"""The plan of one step, from counts alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.step.planning.plan import Budget, Chunk, Offers, RunningView, StepPlan, WaitingView
from engine.step.planning.scheduler import schedule


def decode(arrival: int, **changes: Any) -> RunningView:
    fields = {
        "key": (arrival, 0),
        "num_remaining": 1,
        "is_decode": True,
        "blocks_wanted": 0,
        "blocks_freed": 1,
        "is_preemptible": True,
        "home": 0,
    }
    return RunningView(**(fields | changes))


def prefill(arrival: int, num_remaining: int, **changes: Any) -> RunningView:
    return decode(arrival, num_remaining=num_remaining, is_decode=False, **changes)


def waiting(arrival: int, num_uncached: int = 4, **changes: Any) -> Offers:
    """For one home."""
    fields = {
        "key": (arrival, 0),
        "num_uncached": num_uncached,
        "blocks_wanted": 2,
        "seats": 1,
        "is_remote": False,
        "home": 0,
    }
    return (WaitingView(**(fields | changes)),)


def budget(**changes: int) -> list[Budget]:
    """Of one home."""
    fields = {"max_batch_tokens": 8, "max_num_seqs": 4, "num_available": 8, "seats_taken": 0}
    return [Budget(**(fields | changes))]


def keys(*arrivals: int) -> tuple[tuple[int, int], ...]:
    return tuple((arrival, 0) for arrival in arrivals)


def test_decodes_come_first_and_prompts_share_what_is_left_of_the_token_budget() -> None:
    running = [prefill(1, 5), decode(2), decode(3)]
    plan = schedule(running, [waiting(4, 9)], budget(seats_taken=3))
    assert plan.decodes == keys(2, 3)
    assert plan.chunks == (Chunk((1, 0), 5), Chunk((4, 0), 1))
    assert plan.admitted == keys(4)


def test_a_prompt_longer_than_the_budget_is_cut_into_chunks() -> None:
    plan = schedule([], [waiting(1, 20, blocks_wanted=8), waiting(2)], budget())
    assert plan.chunks == (Chunk((1, 0), 8),)
    assert plan.admitted == keys(1)


def test_admission_is_first_come_first_served_even_when_a_later_one_would_fit() -> None:
    plan = schedule([], [waiting(1, blocks_wanted=9), waiting(2, blocks_wanted=1)], budget())
    assert plan.is_empty


def test_the_queue_is_asked_no_further_than_the_first_that_does_not_fit() -> None:
    asked = []

    def queue() -> Iterator[Offers]:
        for arrival in range(5):
            asked.append(arrival)
            yield waiting(arrival, blocks_wanted=3)

    schedule([], queue(), budget(max_batch_tokens=100))
    assert asked == [0, 1, 2]


def test_a_remote_prompt_takes_blocks_and_a_seat_but_no_tokens() -> None:
    queue = [waiting(1, is_remote=True), waiting(2, 8), waiting(3)]
    plan = schedule([], queue, budget())
    assert plan.admitted == keys(1, 2)
    assert plan.chunks == (Chunk((2, 0), 8),)


def test_admission_leaves_a_block_to_grow_for_each_running_sequence() -> None:
    running = [decode(1), decode(2)]
    plan = schedule(running, [waiting(3)], budget(num_available=3, seats_taken=2))
    assert plan.admitted == ()
    plan = schedule(running, [waiting(3)], budget(num_available=4, seats_taken=2))
    assert plan.admitted == keys(3)


def test_more_choices_than_seats_are_admitted_when_nobody_else_is_there() -> None:
    assert schedule([], [waiting(1, seats=9)], budget()).admitted == keys(1)
    plan = schedule([decode(1)], [waiting(2, seats=4)], budget(seats_taken=1))
    assert plan.admitted == ()


def test_more_decodes_than_seats_take_turns_by_age() -> None:
    plan = schedule([decode(i) for i in range(6)], [], budget(max_num_seqs=4))
    assert plan.decodes == keys(0, 1, 2, 3)


def test_the_youngest_gives_its_blocks_to_the_oldest() -> None:
    running = [decode(1, blocks_wanted=1), decode(2), prefill(3, 4)]
    plan = schedule(running, [], budget(num_available=0))
    expected = StepPlan(preempted=keys(3), admitted=(), homes=(), decodes=keys(1, 2), chunks=())
    assert plan == expected


def test_a_sequence_without_younger_ones_gives_way_itself() -> None:
    running = [decode(1), decode(2, blocks_wanted=1)]
    plan = schedule(running, [waiting(3)], budget(num_available=0, seats_taken=2))
    assert plan.preempted == keys(2)
    assert plan.decodes == keys(1)
    assert plan.admitted == ()


def test_a_pinned_export_is_never_preempted() -> None:
    running = [decode(1, blocks_wanted=1), decode(2), prefill(3, 4, is_preemptible=False)]
    plan = schedule(running, [], budget(num_available=0))
    assert plan.preempted == keys(2)
    assert plan.chunks == (Chunk((3, 0), 4),)


def test_the_last_sequence_waits_instead_of_preempting_itself() -> None:
    plan = schedule([decode(1, blocks_wanted=1)], [], budget(num_available=0))
    assert plan.is_empty


def test_victims_are_taken_until_there_is_room() -> None:
    running = [decode(1, blocks_wanted=1), decode(2, blocks_freed=1), decode(3, blocks_freed=0)]
    plan = schedule(running, [], budget(num_available=0))
    assert plan.preempted == keys(3, 2)
    assert plan.decodes == keys(1)
