"""Who may not join: a worker that the fleet could not reach."""

from __future__ import annotations

import pytest

from cluster.errors import InvalidRequest
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.membership.memory import MemoryMembership
from router.control.join_rules import JoinRules, OwnModel
from tests.router.fake_decode_worker import PAIRING

ELSEWHERE = "ipv4:203.0.113.9:4711"
HERE = "ipv4:127.0.0.1:4711"


def rules() -> JoinRules:
    return JoinRules(
        MemoryMembership(1.0),
        OwnModel(),
        beat_interval_s=1.0,
        is_cut_off=lambda key: False,
        clock=lambda: 0.0,
    )


def member_at(address: str, events: str = "") -> Member:
    return Member(
        worker_id="prefill-1",
        incarnation="i1",
        role=Role.PREFILL,
        address=address,
        pairing=PAIRING,
        model="m",
        max_context_tokens=100,
        kv_events_address=events,
    )


@pytest.mark.parametrize(
    ("member", "field"),
    [
        (member_at("127.0.0.1:9"), "address"),
        (member_at("localhost:9"), "address"),
        (member_at("203.0.113.9:9", "tcp://127.0.0.1:5"), "kv_events_address"),
    ],
)
def test_a_worker_from_elsewhere_with_a_loopback_address_is_refused(
    member: Member, field: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"203\.0\.113\.9.*only its own machine") as refused:
        rules().check(member, ELSEWHERE)
    assert refused.value.param == field
    rules().check(member, HERE)


def test_a_worker_from_elsewhere_with_an_address_of_its_own_is_taken() -> None:
    rules().check(member_at("203.0.113.9:9", "tcp://203.0.113.9:5"), ELSEWHERE)
