"""Addresses are equals, whatever connections they make; at one address its connections are."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from router.grpc_front.caller import Caller
from router.grpc_front.fair_turns import Shares, last_in_turn, next_in_turn, who_gives_way


@dataclass(frozen=True)
class Asked:
    name: str
    caller: Caller
    is_known: bool = False


def claims(*names: str) -> list[Asked]:
    """Named address and connection: a1, a2, b1."""
    return [Asked(name, Caller(name[0], name)) for name in names]


def giving_way(placed: list[Asked], waiting: list[Asked]) -> str | None:
    found = who_gives_way(placed, waiting)
    return None if found is None else found.name


def test_the_first_in_line_of_who_has_fewest_places_is_next() -> None:
    placed = claims("a1", "a2", "b1")
    assert next_in_turn(claims("a3", "b2", "c1", "c2"), placed).name == "c1"
    assert next_in_turn(claims("b1", "b2"), placed).name == "b2"


def test_the_last_to_come_of_who_has_most_in_line_is_refused() -> None:
    assert last_in_turn(claims("a1", "b1", "a2", "c1")).name == "a2"
    assert last_in_turn(claims("a1", "a2", "a2", "a3")).name == "a2"
    assert last_in_turn(claims("a1", "b1", "c1")).name == "c1"


def test_the_address_with_most_places_gives_way_however_few_each_connection_has() -> None:
    assert giving_way(claims("b1", "a1", "a2", "a3"), claims("c1")) == "a1"
    assert giving_way(claims("b1", "a1", "a2", "a3"), claims("b2")) == "a1"


def test_at_one_address_the_connection_with_most_gives_way() -> None:
    assert giving_way(claims("b1", "a1", "a2", "a2"), claims("a3")) == "a2"
    assert giving_way(claims("a2", "a2", "b1", "b2"), claims("a3")) == "a2"


def test_between_equals_who_is_known_comes_first_and_is_refused_last() -> None:
    known = Asked("known", Caller("a", "a9"), is_known=True)
    strangers = claims("a1", "a2")
    assert next_in_turn([*strangers, known], claims("a3")) is known
    assert last_in_turn([*strangers, known]).name == "a2"
    assert next_in_turn([known, *claims("b1")], claims("a3")).name == "b1"
    assert next_in_turn([known, *strangers], claims("a9")).name == "a1"


def test_nobody_gives_way_to_who_would_then_have_more() -> None:
    assert giving_way(claims("a1"), claims("b1")) is None
    assert giving_way(claims("a1", "b1", "b2"), claims("a2")) is None
    assert giving_way(claims("a1", "a2"), claims("a3")) is None


def test_gates_of_any_callers_come_to_rest_with_everybody_s_share() -> None:
    chance = Random(7)
    for _ in range(300):
        names = [chance.choice("abc") + chance.choice("12") for _ in range(12)]
        placed, waiting = claims(*names[:5]), claims(*names[5:])
        for _ in range(50):
            if (ended := who_gives_way(placed, waiting)) is None:
                break
            placed.remove(ended)
            placed.append(next_in_turn(waiting, placed))
            waiting.remove(placed[-1])
            if not waiting:
                break
        else:
            raise AssertionError(f"{names}: it never comes to rest")
        fewest = min((Shares(placed).of(claim)[0] for claim in waiting), default=5)
        assert max(Shares(placed).of(claim)[0] for claim in placed) <= fewest + 1
