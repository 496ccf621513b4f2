"""Operators reach workers by way of the router, which reaches them as it does for requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, Counter

from cluster.dial.dialer import Dialer
from cluster.errors import InvalidRequest, WorkerLost
from cluster.identity import Role
from cluster.membership.member import Member, MemberState
from cluster.pairing import VLLM
from protos.membership_pb2 import SpareWorker
from protos.router_admin_pb2 import TryPairRequest, WorkerStatusRequest
from protos.worker_pb2 import StatusRequest, StatusResponse
from router.control.fleet_relay import STATUS_TIMEOUT_S, FleetRelay
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from tests.router.planes import PAIRING, member_of


@dataclass
class Worker:
    """Stands for a WorkerAdminLink and for the dialer that opens it."""

    asked: list[tuple[str, bool, float]] = field(default_factory=list)
    is_lost: bool = False
    num_open: int = 0
    address: str = ""

    def worker_admin(self, address: str) -> Worker:
        self.address, self.num_open = address, self.num_open + 1
        return self

    session = worker_admin

    async def status(self, request: StatusRequest, *, timeout_s: float) -> StatusResponse:
        if self.is_lost:
            raise WorkerLost("gone")
        self.asked.append((self.address, request.check_invariants, timeout_s))
        return StatusResponse(state="ready")

    async def close(self) -> None:
        self.num_open -= 1


class Members:
    """Stands for Fleet."""

    def __init__(self, *others: Member) -> None:
        roles = {"prefill-0": Role.PREFILL, "decode-0": Role.DECODE}
        own = [member_of(role, name) for name, role in roles.items()]
        self.members = [FleetMember(MemberState.joined(member, 0.0)) for member in (*own, *others)]

    def with_role(self, role: Role) -> list[FleetMember]:
        return [item for item in self.members if item.member.role is role]


SPARE = SpareWorker(worker_id="decode-1", role="decode", address="10.0.0.9:7000")


def vllm_member(role: Role) -> Member:
    theirs = replace(PAIRING, weights=VLLM)
    return member_of(role, f"vllm-{role}:1", pairing=theirs, version="vLLM 0.32.0")


def relay(worker: Worker, *others: Member) -> FleetRelay:
    registry = CollectorRegistry()
    Counter("splitserve_turns", "Turns.", registry=registry).inc(3)
    fleet, dialer = cast(Fleet, Members(*others)), cast(Dialer, worker)
    return FleetRelay(fleet, lambda: [SPARE], registry, dialer)


async def test_a_member_and_a_spare_are_asked_where_they_are() -> None:
    worker = Worker()
    member = Members().members[1].member
    asked = WorkerStatusRequest(worker_id="decode-0", check_invariants=True)
    assert (await relay(worker).status(asked)).state == "ready"
    await relay(worker).status(WorkerStatusRequest(worker_id="decode-1"))
    assert worker.asked == [
        (member.address, True, STATUS_TIMEOUT_S),
        (SPARE.address, False, STATUS_TIMEOUT_S),
    ]
    assert worker.num_open == 0


async def test_who_is_lost_is_told_so_and_nothing_stays_open() -> None:
    worker = Worker(is_lost=True)
    with pytest.raises(WorkerLost, match="gone"):
        await relay(worker).status(WorkerStatusRequest(worker_id="prefill-0"))
    assert worker.num_open == 0


async def test_who_is_not_known_is_refused_and_nobody_is_dialled() -> None:
    worker = Worker()
    with pytest.raises(InvalidRequest, match="no worker 'decode-7' is there"):
        await relay(worker).status(WorkerStatusRequest(worker_id="decode-7"))
    for pair in (("decode-0", "decode-0"), ("prefill-0", "decode-1")):
        asked = TryPairRequest(prefill_worker=pair[0], decode_worker=pair[1], timeout_s=5.0)
        with pytest.raises(InvalidRequest, match="is there"):
            await relay(worker).try_pair(asked)
    assert worker.asked == []


@pytest.mark.parametrize("role", Role)
async def test_another_engines_server_is_never_dialled(role: Role) -> None:
    """The fleet's token goes with every call, and anybody may have named that server."""
    worker, theirs = Worker(), vllm_member(role)
    relay_of_both = relay(worker, theirs)
    with pytest.raises(InvalidRequest, match=r"is a server of vLLM 0\.32\.0") as caught:
        await relay_of_both.status(WorkerStatusRequest(worker_id=theirs.worker_id))
    assert caught.value.param == "worker_id"
    pair = {Role.PREFILL: "prefill-0", Role.DECODE: "decode-0"} | {role: theirs.worker_id}
    asked = TryPairRequest(
        prefill_worker=pair[Role.PREFILL], decode_worker=pair[Role.DECODE], timeout_s=5.0
    )
    with pytest.raises(InvalidRequest, match="no worker of ours"):
        await relay_of_both.try_pair(asked)
    assert (worker.address, worker.num_open) == ("", 0)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 60.5, float("nan"), float("inf")])
async def test_a_trial_has_its_time(timeout_s: float) -> None:
    asked = TryPairRequest(
        prefill_worker="prefill-0", decode_worker="decode-0", timeout_s=timeout_s
    )
    with pytest.raises(InvalidRequest, match="timeout_s is"):
        await relay(Worker()).try_pair(asked)


def test_numbers_are_as_prometheus_reads_them() -> None:
    assert "splitserve_turns_total 3.0" in relay(Worker()).metrics()
