"""Who may not join: a worker that the fleet could not reach."""

from __future__ import annotations

import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from cluster.errors import InvalidRequest
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.membership.memory import MemoryMembership
from router.control.join_rules import JoinRules, OwnModel
from tests.router.fake_decode_worker import PAIRING


def own_address() -> str:
    """One of this machine's; on a machine without a network, its loopback address."""
    found = (item for items in psutil.net_if_addrs().values() for item in items)
    own = [item.address for item in found if item.family is socket.AF_INET]
    return next((address for address in own if not address.startswith("127.")), "127.0.0.1")


ELSEWHERE = "ipv4:203.0.113.9:4711"
HERE = "ipv4:127.0.0.1:4711"


def rules(store: MemoryMembership | None = None) -> JoinRules:
    return JoinRules(
        store or MemoryMembership(1.0),
        OwnModel(),
        beat_interval_s=1.0,
        is_cut_off=lambda key: False,
        clock=lambda: 0.0,
    )


def member_at(address: str, events: str = "", role: Role = Role.PREFILL) -> Member:
    return Member(
        worker_id=f"{role}-1",
        incarnation="i1",
        role=role,
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


@pytest.mark.parametrize("decode_at", ["203.0.113.9:5", "decode-7.pool:5"])
@pytest.mark.parametrize("prefill_at", ["127.0.0.1:9", "localhost:9"])
@pytest.mark.parametrize("first", list(Role))
async def test_a_decode_worker_elsewhere_and_a_prefill_worker_on_loopback_are_not_both_taken(
    decode_at: str, prefill_at: str, first: Role
) -> None:
    prefill, decode = member_at(prefill_at), member_at(decode_at, role=Role.DECODE)
    pair = [(prefill, HERE), (decode, ELSEWHERE)]
    (known, _), (newcomer, peer) = pair if first is Role.PREFILL else reversed(pair)
    store = MemoryMembership(1.0)
    await store.join(known)
    with pytest.raises(InvalidRequest, match=f"at {prefill_at}.*--advertise-host") as refused:
        rules(store).check(newcomer, peer)
    assert refused.value.param == "address"
    assert newcomer.worker_id in refused.value.message


@pytest.mark.parametrize(
    ("prefill_at", "decode_at"),
    [
        ("127.0.0.1:9", "127.0.0.1:5"),
        ("127.0.0.1:9", f"{own_address()}:5"),
        ("127.0.0.1:9", f"{socket.gethostname()}:5"),
        ("203.0.113.8:9", "127.0.0.1:5"),
        ("203.0.113.8:9", "203.0.113.9:5"),
        ("prefill-7.pool:9", "decode-7.pool:5"),
    ],
)
async def test_workers_that_reach_each_other_are_both_taken(
    prefill_at: str, decode_at: str
) -> None:
    prefill, decode = member_at(prefill_at), member_at(decode_at, role=Role.DECODE)
    for known, newcomer in ((prefill, decode), (decode, prefill)):
        store = MemoryMembership(1.0)
        await store.join(known)
        rules(store).check(newcomer, HERE if "127." in newcomer.address else ELSEWHERE)


async def test_the_machine_is_asked_for_its_addresses_once_however_large_the_fleet_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def interfaces() -> dict[str, list[Any]]:
        asked.append("interfaces")
        return {"eth0": [SimpleNamespace(address="203.0.113.9")]}

    monkeypatch.setattr(psutil, "net_if_addrs", interfaces)
    store = MemoryMembership(1.0)
    for i in range(5):
        decode = member_at(f"203.0.113.9:{i + 1}", role=Role.DECODE)
        await store.join(replace(decode, worker_id=f"decode-{i}"))
    rules(store).check(member_at("127.0.0.1:9"), HERE)
    assert asked == ["interfaces"]
