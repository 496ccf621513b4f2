"""A fleet that plays its answers by hand: the router, and every decode worker's session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cluster.dial.dialer import SessionLink
from cluster.errors import SplitserveError
from cluster.membership.member import member_from_wire
from cluster.pairing import Pairing
from cluster.wire import pairing_to_wire
from protos import generation_pb2, membership_pb2, worker_pb2
from protos.router_admin_pb2 import PairTrial, TryPairRequest
from router.control.pair_trials import try_pair
from tests.router.planes import PAIRING

FRAMES = Callable[[worker_pb2.Submit], Iterator[worker_pb2.WorkerFrame]]


def carried(submit: worker_pb2.Submit) -> Iterator[worker_pb2.WorkerFrame]:
    """As a decode worker answers that has read the blocks."""
    timing = generation_pb2.Timing(
        prefill_worker=submit.prefill[0].worker_id,
        kv_bytes=3 << 20,
        kv_transfer_ms=1.5,
        kv_transport="nixl/UCX sm",
    )
    ended = worker_pb2.Ended(request_id=submit.request_id, timing=timing)
    yield worker_pb2.WorkerFrame(ended=[ended])


def given_up(submit: worker_pb2.Submit) -> Iterator[worker_pb2.WorkerFrame]:
    """As one that could not, and computed the prompt itself."""
    outcome = worker_pb2.HandoffOutcome(worker_id=submit.prefill[0].worker_id, failed=True)
    yield worker_pb2.WorkerFrame(handoffs=[outcome])
    yield worker_pb2.WorkerFrame(ended=[worker_pb2.Ended(request_id=submit.request_id)])


def refused(submit: worker_pb2.Submit) -> Iterator[worker_pb2.WorkerFrame]:
    error = worker_pb2.Error(code="draining", message="no new requests")
    yield worker_pb2.WorkerFrame(
        ended=[worker_pb2.Ended(request_id=submit.request_id, error=error)]
    )


@dataclass
class PlayedSession(SessionLink):
    frames: FRAMES
    fleet: PlayedFleet
    waiting: list[worker_pb2.WorkerFrame] = field(default_factory=list)

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        if message.HasField("open"):
            self.waiting.append(worker_pb2.WorkerFrame(opened=message.open))
        else:
            self.fleet.submitted.append(message.submit)
            self.waiting += self.frames(message.submit)

    async def read(self) -> worker_pb2.WorkerFrame | None:
        return self.waiting.pop(0) if self.waiting else None

    async def close(self) -> None:
        self.fleet.num_closed += 1


@dataclass
class PlayedFleet:
    """A Dialer, and the router."""

    members_told: list[Any]
    frames: FRAMES = carried
    failure: SplitserveError | None = None
    submitted: list[worker_pb2.Submit] = field(default_factory=list)
    num_closed: int = 0

    def operator(self, address: str) -> PlayedFleet:
        return self

    def session(self, address: str) -> PlayedSession:
        return PlayedSession(self.frames, self)

    async def members(self, *, timeout_s: float) -> Any:
        if self.failure is not None:
            raise self.failure
        return membership_pb2.MembersResponse(members=self.members_told)

    async def try_pair(self, asked: TryPairRequest, *, timeout_s: float) -> PairTrial:
        by_id = {each.member.worker_id: each.member for each in self.members_told}
        pair = (by_id[asked.prefill_worker], by_id[asked.decode_worker])
        prefill, decode = (member_from_wire(each) for each in pair)
        return await try_pair(self, prefill, decode, asked.timeout_s)  # type: ignore[arg-type]

    async def close(self) -> None:
        """Nothing is open."""


def member(name: str, *, state: str = "ready", pairing: Pairing = PAIRING) -> Any:
    told = membership_pb2.Member(
        worker_id=name,
        incarnation=f"{name}-1",
        role=name.partition("-")[0],
        address=f"{name}:7000",
        model="tiny",
        max_context_tokens=4096,
        pairing=pairing_to_wire(pairing),
    )
    return membership_pb2.MemberState(member=told, state=state)
