"""What operators have said of workers, by id."""

from __future__ import annotations

import pytest

from cluster.membership.hold import MAX_NUMBER, NO_HOLD, HoldKind, WorkerHold
from router.fleet import holds as module
from router.fleet.holds import OVER_S, Holds
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


def test_an_order_has_no_larger_number_than_travels() -> None:
    assert WorkerHold(HoldKind.DRAIN, MAX_NUMBER).then(HoldKind.NONE).number == MAX_NUMBER
