"""What operators have said of workers, by id."""

from __future__ import annotations

import pytest

from cluster.membership.hold import MAX_NUMBER, NO_HOLD, HoldKind, WorkerHold
from router.fleet import holds as module
from router.fleet.holds import OVER_S, Holds
from router.sharing.word import VERSION, HoldWord, RouterWord, packed_word, word_of
from tests.virtual_time import VirtualTime


def new_holds(time: VirtualTime) -> Holds:
    return Holds(lambda worker_id, hold: None, time)


def test_what_is_over_is_told_with_the_next_number() -> None:
    holds = new_holds(VirtualTime())
    holds.order("w", HoldKind.DRAIN)
    holds.forget("w")
    assert holds.known == {"w": WorkerHold(HoldKind.NONE, 2)}
    holds.hear("w", WorkerHold(HoldKind.DRAIN, 1))
    assert not holds.of("w").is_on
    holds.hear("w", WorkerHold(HoldKind.DRAIN, 3))
    assert holds.of("w").is_on


def test_of_a_worker_that_nobody_held_nothing_is_kept() -> None:
    holds = new_holds(VirtualTime())
    holds.forget("w")
    assert holds.known == {} and holds.of("w") == NO_HOLD


def test_what_has_been_over_for_long_is_forgotten_and_a_hold_never() -> None:
    time = VirtualTime()
    holds = new_holds(time)
    holds.order("held", HoldKind.CORDON)
    holds.order("over", HoldKind.CORDON)
    holds.forget("over")
    time.now_s += OVER_S + 1
    holds.order("another", HoldKind.CORDON)
    assert set(holds.known) == {"held", "another"}


def test_of_too_many_those_that_are_over_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HOLDS", 3)
    holds = new_holds(VirtualTime())
    for name in "abc":
        holds.order(name, HoldKind.CORDON)
    holds.forget("b")
    holds.order("d", HoldKind.CORDON)
    assert set(holds.known) == {"a", "c", "d"}
    holds.order("e", HoldKind.CORDON)
    assert set(holds.known) == {"c", "d", "e"}


def talk(one: Holds, other: Holds) -> None:
    """As routers do, each of what it knows."""
    for teller, hearer in ((one, other), (other, one)):
        for worker_id, hold in teller.known.items():
            hearer.hear(worker_id, hold, teller.over_s(worker_id))


def test_orders_go_on_after_the_largest_number_that_travels() -> None:
    time = VirtualTime()
    one, other = new_holds(time), new_holds(time)
    one.hear("worker", WorkerHold(HoldKind.DRAIN, MAX_NUMBER))
    for kind in (HoldKind.NONE, HoldKind.CORDON, HoldKind.NONE):
        talk(one, other)
        other.order("worker", kind)
        word = packed_word(RouterWord(VERSION, [], holds=words_of(other)))
        heard = word_of(word)
        assert heard is not None
        one.hear("worker", heard.holds["worker"].hold)
        assert one.of("worker") == other.of("worker") and one.of("worker").kind is kind
    assert one.of("worker").number == 3
    one.hear("worker", WorkerHold(HoldKind.DRAIN, MAX_NUMBER))  # by whoever made it up, again
    assert not one.of("worker").is_on


def words_of(holds: Holds) -> dict[str, HoldWord]:
    return {name: HoldWord(hold.kind, hold.number) for name, hold in holds.known.items()}


def test_a_word_with_a_number_that_does_not_travel_is_none() -> None:
    held = {"worker": HoldWord(HoldKind.DRAIN, MAX_NUMBER + 1)}
    assert word_of(packed_word(RouterWord(VERSION, [], holds=held))) is None


def test_two_routers_that_tell_each_other_forget_what_is_over_all_the_same() -> None:
    time = VirtualTime()
    one, other = new_holds(time), new_holds(time)
    one.order("over", HoldKind.DRAIN)
    one.forget("over")
    for _ in range(30):
        talk(one, other)
        talk(other, one)
        time.now_s += 3600 + 1
    assert not one.known and not other.known


def test_what_is_heard_makes_no_way_for_itself_but_for_a_hold_among_those_that_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_HOLDS", 3)
    holds = new_holds(VirtualTime())
    for name in "abc":
        holds.order(name, HoldKind.CORDON)
    holds.forget("a")
    holds.hear("d", WorkerHold(HoldKind.NONE, 2))
    assert set(holds.known) == {"a", "b", "c"}
    holds.hear("d", WorkerHold(HoldKind.CORDON, 1))
    assert set(holds.known) == {"b", "c", "d"}
    holds.hear("e", WorkerHold(HoldKind.CORDON, 1))
    assert set(holds.known) == {"b", "c", "d"}
    holds.hear("b", WorkerHold(HoldKind.NONE, 2))
    assert not holds.of("b").is_on


def test_full_routers_have_no_more_to_tell_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HOLDS", 3)
    changed = list[str]()
    time = VirtualTime()
    one, other = (Holds(lambda name, hold: changed.append(name), time) for _ in range(2))
    for name in "abc":
        one.order(name, HoldKind.DRAIN)
        one.forget(name)
    talk(one, other)
    one.order("d", HoldKind.DRAIN)
    talk(one, other)
    assert one.of("d").is_on and other.of("d").is_on
    changed.clear()
    talk(one, other)
    assert not changed
