"""When a worker wants its next prompt."""

from __future__ import annotations

import random

import pytest

from router.fleet.prompt_turns import MAX_AHEAD_MS, MAX_PROMPTS, PromptTurns, Turn
from tests.manual_clock import ManualClock


def test_the_next_prompt_comes_when_the_one_before_is_nearly_computed() -> None:
    clock = ManualClock()
    turns = PromptTurns(clock)
    assert turns.free_in_ms() == 0.0
    turns.give(100.0)
    assert turns.free_in_ms() == pytest.approx(100.0 - MAX_AHEAD_MS)
    clock.advance(0.06)
    assert turns.free_in_ms() == pytest.approx(40.0 - MAX_AHEAD_MS)
    clock.advance(0.031)
    assert turns.free_in_ms() == 0.0


def test_short_prompts_come_together() -> None:
    turns, num_given = PromptTurns(ManualClock()), 0
    while turns.free_in_ms() == 0.0:
        turns.give(1.0)
        num_given += 1
    assert num_given == MAX_AHEAD_MS + 1


def test_a_worker_that_is_slower_than_it_says_gets_no_more_than_two() -> None:
    clock = ManualClock()
    turns = PromptTurns(clock)
    first = turns.give(100.0)
    clock.advance(10.0)
    assert turns.free_in_ms() == 0.0
    turns.give(100.0)
    clock.advance(10.0)
    assert turns.num_turns == MAX_PROMPTS and turns.free_in_ms() is None
    first.over()
    first.over()
    assert turns.free_in_ms() == pytest.approx(100.0 - MAX_AHEAD_MS)


def test_whatever_is_over_first_nothing_is_left_when_all_is() -> None:
    chance, clock = random.Random(6), ManualClock()
    turns, given = PromptTurns(clock), list[Turn]()
    for _ in range(2000):
        clock.advance(chance.random() / 100)
        if chance.random() < 0.5 or not given:
            given.append(turns.give(chance.random() * 50))
        else:
            given.pop(chance.randrange(len(given))).over()
        assert turns.num_turns == len(given)
        free_ms = turns.free_in_ms()
        assert free_ms is None or 0 <= free_ms <= 50 * len(given)
    for turn in given:
        turn.over()
    assert turns.free_in_ms() == 0.0
