"""Orders about a worker: the newest that anybody has heard of is what everybody ends with."""

from __future__ import annotations

from itertools import permutations

import pytest

from cluster.errors import InvalidRequest
from cluster.membership.hold import (
    MAX_NUMBER,
    NO_HOLD,
    HoldKind,
    WorkerHold,
    hold_from_wire,
    hold_to_wire,
)
from protos import membership_pb2


def after(told: tuple[WorkerHold, ...]) -> WorkerHold:
    """What somebody keeps who has heard them in that order."""
    known = NO_HOLD
    for hold in told:
        known = hold if hold.is_newer_than(known) else known
    return known


def test_in_whatever_order_they_are_heard_the_same_is_kept() -> None:
    told = (
        NO_HOLD,
        WorkerHold(HoldKind.CORDON, 1),
        WorkerHold(HoldKind.NONE, 2),
        WorkerHold(HoldKind.DRAIN, 2),
        WorkerHold(HoldKind.CORDON, 2),
    )
    kept = {after(order) for order in permutations(told)}
    assert kept == {WorkerHold(HoldKind.DRAIN, 2)}


@pytest.mark.parametrize("first", [1, MAX_NUMBER - 2, MAX_NUMBER - 1, MAX_NUMBER])
def test_the_newest_order_is_kept_also_where_numbers_go_round(first: int) -> None:
    told = [WorkerHold(HoldKind.DRAIN, first)]
    for kind in (HoldKind.NONE, HoldKind.CORDON, HoldKind.NONE):
        told.append(told[-1].then(kind))
        assert 1 <= told[-1].number <= MAX_NUMBER
        assert hold_from_wire(hold_to_wire(told[-1])) == told[-1]
        assert float(told[-1].number) == told[-1].number
    assert {after(order) for order in permutations(told)} == {told[-1]}


def test_the_next_order_is_newer_than_whatever_it_takes_back() -> None:
    drained = WorkerHold(HoldKind.DRAIN, 7)
    free = drained.then(HoldKind.NONE)
    assert free.is_newer_than(drained) and not drained.is_newer_than(free)
    assert drained.is_on and not free.is_on


def test_an_old_worker_that_says_nothing_of_holds_has_none() -> None:
    assert hold_from_wire(membership_pb2.BeatRequest().hold) == NO_HOLD
    drained = WorkerHold(HoldKind.DRAIN, 7)
    assert hold_from_wire(hold_to_wire(drained)) == drained


@pytest.mark.parametrize(("kind", "number"), [("taint", 1), ("cordon", 2**53 + 1)])
def test_what_no_router_says_is_refused(kind: str, number: int) -> None:
    with pytest.raises(InvalidRequest):
        hold_from_wire(membership_pb2.WorkerHold(kind=kind, number=number))
