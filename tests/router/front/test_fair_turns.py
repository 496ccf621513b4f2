"""Addresses are equals, whatever connections they make; at one address its connections are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest

from router.front import fair_turns
from router.front.caller import Caller
from router.front.fair_turns import (
    CallerCounts,
    has_place_for,
    last_in_turn,
    may_give_way,
    next_in_turn,
)

PLENTY = 100


@dataclass(frozen=True)
class Asked:
    name: str
    caller: Caller
    is_known: bool = False
    is_doubted: bool = False


def claims(*names: str) -> list[Asked]:
    """Named address and connection: a1, a2, b1."""
    return [Asked(name, Caller(name[0], name)) for name in names]


def tally(*names: str) -> CallerCounts:
    return CallerCounts(claim.caller for claim in claims(*names))


def following(waiting: list[Asked], *taken: str, num_places: int = PLENTY) -> str | None:
    found = next_in_turn(waiting, tally(*taken), num_places)
    return None if found is None else found.name


def refused_of(waiting: list[Asked]) -> Asked:
    return last_in_turn(waiting, CallerCounts(claim.caller for claim in waiting))


def test_the_first_in_line_of_who_has_fewest_places_is_next() -> None:
    assert following(claims("a3", "b2", "c1", "c2"), "a1", "a2", "b1") == "c1"
    assert following(claims("b1", "b2"), "a1", "a2", "b1") == "b2"


def test_the_last_to_come_of_who_has_most_in_line_is_refused() -> None:
    assert refused_of(claims("a1", "b1", "a2", "c1")).name == "a2"
    assert refused_of(claims("a1", "a2", "a2", "a3")).name == "a2"
    assert refused_of(claims("a1", "b1", "c1")).name == "c1"


@pytest.mark.parametrize(
    ("num_places", "of_connection", "of_address"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 2, 3), (7, 3, 5), (28, 14, 21)],
)
def test_whoever_fills_the_places_leaves_some_to_newcomers(
    num_places: int, of_connection: int, of_address: int
) -> None:
    taken = CallerCounts()
    assert num_taken(taken, Caller("a", "a1"), num_places) == of_connection
    for port in range(2, 50):
        num_taken(taken, Caller("a", f"a{port}"), num_places)
    assert taken.num == of_address
    assert has_place_for(Caller("b", "b1"), taken, num_places) == (of_address < num_places)


def num_taken(taken: CallerCounts, caller: Caller, num_places: int) -> int:
    while has_place_for(caller, taken, num_places):
        taken.add(caller)
    return taken.of_connection(caller)


def test_many_addresses_fill_all_places_with_one_each() -> None:
    taken = CallerCounts()
    for name in "abcdefgh":
        assert has_place_for(Caller(name, name), taken, 8)
        taken.add(Caller(name, name))
    assert not has_place_for(Caller("z", "z"), taken, 8)


def test_who_may_have_no_more_keeps_nobody_in_line_from_its_turn() -> None:
    assert following(claims("a1", "b9"), "a1", "b1", "b2", num_places=5) == "b9"
    assert following(claims("a1"), "a1", "b1", "b2", num_places=5) is None


def test_what_is_given_back_is_forgotten() -> None:
    taken = tally("a1", "a2")
    taken.remove(Caller("a", "a1"))
    assert taken.num == 1
    assert taken.of_address(Caller("a", "a1")) == 1
    assert taken.of_connection(Caller("a", "a1")) == 0


def test_between_equals_who_is_known_comes_first_and_is_refused_last() -> None:
    known = Asked("known", Caller("a", "a9"), is_known=True)
    strangers = claims("a1", "a2")
    assert following([*strangers, known], "a3") == "known"
    assert refused_of([*strangers, known]).name == "a2"
    assert following([known, *claims("b1")], "a3") == "b1"
    assert following([known, *strangers], "a9") == "a1"


def test_the_doubted_come_after_all_others_and_are_refused_before_them() -> None:
    doubted = replace(claims("d1")[0], is_doubted=True)
    assert following([doubted, *claims("a2")], "a1") == "a2"
    assert following([doubted], "a1") == "d1"
    assert refused_of([doubted, *claims("a1", "a1")]) is doubted


def test_nobody_gives_way_to_who_has_more() -> None:
    placed = claims("a1", "a2", "b1")
    taken = tally("a1", "a2", "b1")
    names = [claim.name for claim in may_give_way(placed, claims("a3"), taken)]
    assert names == ["a1", "a2"]
    assert may_give_way(placed, claims("b2"), taken) == placed
    assert may_give_way(placed, claims("c1"), taken) == placed


def test_whoever_comes_and_goes_everybody_is_served_in_the_end() -> None:
    chance = Random(7)
    for num_places in (1, 2, 3, 5):
        for _ in range(60):
            waiting = claims(*(chance.choice("abc") + chance.choice("12") for _ in range(12)))
            placed: list[Asked] = []
            taken = CallerCounts()
            while waiting or placed:
                claim = next_in_turn(waiting, taken, num_places)
                if claim is None:
                    taken.remove(placed.pop(chance.randrange(len(placed))).caller)
                    continue
                waiting.remove(claim)
                placed.append(claim)
                taken.add(claim.caller)
                assert len(placed) == taken.num <= num_places


def test_who_is_refused_is_the_last_by_all_that_turns_go_by() -> None:
    """Against one look at everybody, whole."""
    chance = Random(3)
    for _ in range(300):
        waiting = [
            replace(
                claims(chance.choice(("a1", "a2", "b1", "b2", "c1")))[0],
                is_known=chance.random() < 0.5,
                is_doubted=chance.random() < 0.2,
            )
            for _ in range(chance.randint(1, 9))
        ]
        in_line = CallerCounts(each.caller for each in waiting)
        expected = max(reversed(waiting), key=lambda each: fair_turns._rank(each, in_line))
        assert last_in_turn(waiting, in_line) is expected
