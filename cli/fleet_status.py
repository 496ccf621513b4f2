"""What a fleet says of itself: the router's members, and each member's own word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec

from cluster.errors import SplitserveError
from cluster.generation import EngineLoad
from cluster.rpc import error_of, open_channel
from cluster.wire import load_from_wire
from protos import membership_pb2, membership_pb2_grpc, worker_pb2, worker_pb2_grpc

ROUTER_TIMEOUT_S = 5.0
WORKER_TIMEOUT_S = 10.0


class RouterUnreachable(Exception):
    """The router's gRPC server does not answer."""


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as the router and the worker itself see it."""

    worker_id: str
    incarnation: str
    role: str
    state: str
    """Its own word; the router's where it does not answer."""
    router_state: str
    address: str
    model: str
    version: str
    pid: int
    engine_pid: int
    beat_age_s: float
    uptime_s: float
    num_in_flight: int
    indexed_blocks: int
    kv_transport: str
    load: EngineLoad
    violations: list[str]
    """Broken invariants; with `check` only."""
    problem: str
    """Why the worker did not answer; empty when it did."""

    @property
    def is_sound(self) -> bool:
        """It answered, and found nothing broken."""
        return not self.violations and not self.problem


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The router and its members."""

    router: str
    version: str
    uptime_s: float
    num_queued: int
    num_in_flight: int
    members: list[MemberStatus]


async def ask_fleet(address: str, *, check: bool) -> FleetStatus:
    """Asks the router, then all workers at once. Raises RouterUnreachable."""
    async with _channel(address) as channel:
        membership = membership_pb2_grpc.MembershipStub(channel)
        try:
            answer = await membership.Members(
                membership_pb2.MembersRequest(), timeout=ROUTER_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as failure:
            raise RouterUnreachable(f"{address}: {error_of(failure).message}") from failure
    members = await asyncio.gather(*(_ask_member(member, check) for member in answer.members))
    return FleetStatus(
        router=address,
        version=answer.version,
        uptime_s=answer.uptime_s,
        num_queued=answer.num_queued,
        num_in_flight=answer.num_in_flight,
        members=sorted(members, key=lambda member: (member.role, member.worker_id)),
    )


async def _ask_member(seen: membership_pb2.MemberState, check: bool) -> MemberStatus:
    """The worker's own numbers; the router's where the worker does not answer."""
    try:
        return _status(seen, await _own_word(seen.member.address, check), problem="")
    except SplitserveError as error:
        return _status(seen, None, problem=error.message)


async def _own_word(address: str, check: bool) -> worker_pb2.StatusResponse:
    async with _channel(address) as channel:
        stub = worker_pb2_grpc.WorkerAdminStub(channel)
        request = worker_pb2.StatusRequest(check_invariants=check)
        try:
            own: worker_pb2.StatusResponse = await stub.Status(request, timeout=WORKER_TIMEOUT_S)
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure) from failure
    return own


def _status(
    seen: membership_pb2.MemberState, own: worker_pb2.StatusResponse | None, *, problem: str
) -> MemberStatus:
    member = seen.member
    return MemberStatus(
        worker_id=member.worker_id,
        incarnation=member.incarnation,
        role=member.role,
        state=own.state if own else seen.state,
        router_state=seen.state,
        address=member.address,
        model=member.model,
        version=member.version,
        pid=member.pid,
        engine_pid=own.engine_pid if own else 0,
        beat_age_s=seen.beat_age_s,
        uptime_s=own.uptime_s if own else 0.0,
        num_in_flight=seen.num_in_flight,
        indexed_blocks=seen.indexed_blocks,
        kv_transport=own.kv_transport if own else member.kv_transport,
        load=load_from_wire(own.load if own else seen.load),
        violations=list(own.violations) if own else [],
        problem=problem,
    )


@asynccontextmanager
async def _channel(address: str) -> AsyncIterator[Any]:
    channel = open_channel(address)
    try:
        yield channel
    finally:
        await channel.close()
