"""Whose adapter is read next, where many wait for room."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from engine.model.adapters.rank_adapters import Staged
from engine.step import adapter_turns
from engine.step.adapter_turns import AdapterTurns
from engine.step.adapting import PASSED_S, Adapting
from engine.step.requests.adapter_use import AdapterUse
from tests.engine.step.test_adapting import HeldClock, ScriptedRanks, known_slowly


def use(digest: str, owner: bytes) -> AdapterUse:
    return AdapterUse(digest, lambda use: None, owner)


def digests(uses: list[AdapterUse]) -> list[str]:
    return [each.digest for each in uses]


def test_owners_take_turns_and_each_is_served_in_its_own_order() -> None:
    turns = AdapterTurns()
    waiting = [use("a1", b"a"), use("a2", b"a"), use("b1", b"b"), use("a3", b"a"), use("c1", b"c")]
    served = list[str]()
    while waiting:
        first = turns.in_order(waiting, None)[0]
        turns.taken(first.owner)
        waiting.remove(first)
        served.append(first.digest)
    assert served == ["a1", "b1", "c1", "a2", "a3"]


def test_a_turn_that_is_under_way_is_taken_from_nobody() -> None:
    turns = AdapterTurns()
    turns.taken(b"a")
    waiting = [use("b1", b"b"), use("a1", b"a"), use("a2", b"a"), use("b1", b"b")]
    assert digests(turns.in_order(waiting, "a2")) == ["a2", "b1", "b1", "a1"]


def test_so_many_owners_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_turns, "_MOST", 2)
    turns = AdapterTurns()
    for owner in (b"a", b"b", b"a", b"c"):
        turns.taken(owner)
    waiting = [use("c", b"c"), use("a", b"a"), use("b", b"b")]
    assert digests(turns.in_order(waiting, None)) == ["b", "a", "c"]


def test_many_that_wait_are_put_in_order_when_something_has_changed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks, clock, sorted_at = ScriptedRanks(num_lora_ranks=8, num_slots=3), HeldClock(), list[int]()
    held = Adapting(ranks, clock=clock)
    known_slowly(held, clock, ("a", 8), ("b", 8))
    in_order = AdapterTurns.in_order

    def notes(self: AdapterTurns, waiting: Iterable[AdapterUse], first: str | None) -> Any:
        sorted_at.append(len(list(waiting)))
        return in_order(self, waiting, first)

    monkeypatch.setattr(AdapterTurns, "in_order", notes)
    holder = held.enter("a")
    held.turn()
    waiting = [held.enter("b") for _ in range(5)]
    for _ in range(10):
        clock.now_s += PASSED_S
        held.turn()
    assert sorted_at == [5]  # it lacks room, and goes on lacking it
    ranks.progress = Staged.READING
    holder.leave()
    for _ in range(10):
        clock.now_s += 1.0
        held.turn()
    assert sorted_at == [5, 5]  # it is being read
    ranks.progress = Staged.READ
    clock.now_s += 1.0
    held.turn()
    assert all(each.slot is not None for each in waiting) and sorted_at == [5, 5]


@pytest.mark.parametrize("seed", range(5))
def test_who_asks_for_many_adapters_does_not_put_another_back_for_each_of_them(seed: int) -> None:
    """One owner always waits for eight adapters that lack room, another for one at a time."""
    chance, clock = random.Random(seed), HeldClock()
    held = Adapting(ScriptedRanks(num_lora_ranks=8, num_slots=4), clock=clock)
    names = [f"many{number}" for number in range(8)]
    known_slowly(held, clock, *((name, 8) for name in [*names, "one"]))
    waiting = [held.enter(name, b"greedy") for name in names]
    running: list[tuple[int, AdapterUse]] = []
    asked: AdapterUse | None
    asked, since, num_served = None, 0, 0
    for now in range(600):
        clock.now_s += 1.0
        held.turn()
        if asked is None:
            asked, since = held.enter("one", b"modest"), now
        for end, each in [each for each in running if each[0] <= now]:
            running.remove((end, each))
            each.leave()
        for each in [each for each in waiting if each.slot is not None]:
            waiting.remove(each)
            running.append((now + 8, each))
            waiting.append(held.enter(chance.choice(names), b"greedy"))
        a_turn = 8 + PASSED_S + 3  # an answer, and reading
        assert now - since <= 2 * a_turn
        if asked.slot is not None:
            asked.leave()
            asked, num_served = None, num_served + 1
        assert held.check_invariants() == []
    assert num_served >= 10
