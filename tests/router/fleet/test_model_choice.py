"""Which of several models new requests go to while one is replaced by another."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.member import MemberState
from cluster.pairing import Pairing
from router.fleet.member import FleetMember
from router.fleet.model_choice import ModelChoice
from router.fleet.pairing_states import pairing_states
from tests.router.planes import PAIRING, member_of

OLD, NEW = PAIRING, replace(PAIRING, weights_digest="new")


def worker(pairing: Pairing, role: Role, *, is_leaving: bool = False) -> FleetMember:
    member = member_of(role, f"{role}-{Random().getrandbits(64)}", pairing=pairing)
    member = replace(member, kv_transport="nixl")
    return FleetMember(
        MemberState(member=member, load=EngineLoad(), draining=is_leaving, heard_s=0.0)
    )


def fleet(old: tuple[int, int], new: tuple[int, int]) -> list[FleetMember]:
    """Numbers of prefill and decode workers of each model."""
    return [
        worker(pairing, role)
        for pairing, numbers in ((OLD, old), (NEW, new))
        for role, number in zip((Role.PREFILL, Role.DECODE), numbers, strict=True)
        for _ in range(number)
    ]


def chosen(choice: ModelChoice, members: list[FleetMember]) -> str | None:
    digest = choice.choose(members)
    return {OLD.model_digest: "old", NEW.model_digest: "new"}.get(digest or "")


def test_a_rolling_update_goes_over_once_when_more_of_the_new_model_are_ready() -> None:
    choice = ModelChoice()
    course = [
        (((2, 2), (0, 0)), "old"),
        (((2, 2), (0, 1)), "old"),
        (((2, 2), (1, 1)), "old"),
        (((1, 2), (1, 1)), "old"),
        (((1, 1), (1, 1)), "old"),  # as many: it stays
        (((1, 1), (2, 1)), "new"),
        (((1, 1), (1, 1)), "new"),
        (((0, 1), (2, 2)), "new"),
        (((0, 0), (2, 2)), "new"),
    ]
    for (old, new), expected in course:
        assert chosen(choice, fleet(old, new)) == expected, (old, new)


def test_a_model_with_both_sides_goes_before_a_larger_one_without() -> None:
    assert chosen(ModelChoice(), fleet((0, 5), (1, 1))) == "new"
    assert chosen(ModelChoice(), fleet((5, 0), (0, 1))) == "new"  # prefill alone answers nobody
    assert chosen(ModelChoice(), fleet((5, 0), (5, 0))) is None


def test_workers_that_leave_do_not_count() -> None:
    leaving = [worker(OLD, role, is_leaving=True) for role in (Role.PREFILL, Role.DECODE)]
    assert chosen(ModelChoice(), [*leaving, worker(NEW, Role.DECODE)]) == "new"


def test_candidates_of_another_model_are_for_those_who_have_no_others() -> None:
    choice, members = ModelChoice(), fleet((1, 2), (1, 1))
    decode = [item for item in members if item.is_decode]
    assert {item.model_digest for item in choice.of(decode, members)} == {OLD.model_digest}
    new = [item for item in decode if item.model_digest == NEW.model_digest]
    assert choice.of(new, members) == new  # such as for a stream that the new model has begun


def test_pairings_of_one_model_are_all_of_use() -> None:
    other_layout = worker(replace(OLD, kv_dtype="int8"), Role.DECODE)
    members = [*fleet((1, 1), (0, 0)), other_layout]
    decode = [item for item in members if item.is_decode]
    assert ModelChoice().of(decode, members) == decode


@pytest.mark.parametrize(
    ("members", "lacks"),
    [
        (fleet((1, 1), (0, 0)), [None]),
        (fleet((0, 2), (0, 0)), [None]),  # a fleet without prefill workers lacks none
        (fleet((1, 1), (0, 1)), [None, "prefill"]),
        (fleet((1, 1), (1, 0)), [None, "decode"]),
    ],
)
def test_workers_without_a_partner_are_told(
    members: list[FleetMember], lacks: list[str | None]
) -> None:
    states = pairing_states(members, OLD.model_digest)
    assert [state.lacks for state in states] == lacks
    assert [state.is_served for state in states] == [True, False][: len(states)]
    assert states[0].digest == OLD.digest
