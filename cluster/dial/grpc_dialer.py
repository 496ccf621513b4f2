"""The Dialer of a real fleet: gRPC below, typed errors above."""

from __future__ import annotations

import math

import grpc

from cluster.deadline import Deadline
from cluster.dial.dialer import (
    Dialer,
    MembershipLink,
    OperatorLink,
    PoolLink,
    PrefillLink,
    PrefillStream,
    PrefixCacheLink,
    SessionLink,
    SupervisorLink,
    WorkerAdminLink,
)
from cluster.dial.operator_link import GrpcOperatorLink
from cluster.dial.way import FleetWay, TypedCalls
from cluster.dial.worker_admin_link import GrpcWorkerAdminLink
from cluster.errors import WorkerLost
from cluster.join_token import own_token
from protos import (
    handoff_pb2,
    handoff_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)


class GrpcDialer(Dialer):
    """See Dialer. One channel per link."""

    def __init__(self, token: str | None = None) -> None:
        """`token`: the fleet's, shown with every call; None: this process's own, if it has one."""
        self._way = FleetWay(token or own_token())

    def prefill_worker(self, address: str) -> PrefillLink:
        """See Dialer."""
        return _GrpcPrefillLink(address, self._way)

    def pooling(self, address: str) -> PoolLink:
        """See Dialer."""
        return _GrpcPoolLink(address, self._way)

    def prefix_cache(self, address: str) -> PrefixCacheLink:
        """See Dialer."""
        return _GrpcPrefixCacheLink(address, self._way)

    def session(self, address: str) -> SessionLink:
        """See Dialer."""
        return _GrpcSessionLink(address, self._way)

    def membership(self, address: str) -> MembershipLink:
        """See Dialer."""
        return _GrpcMembershipLink(address, self._way)

    def operator(self, address: str) -> OperatorLink:
        """See Dialer."""
        return GrpcOperatorLink(address, self._way)

    def worker_admin(self, address: str) -> WorkerAdminLink:
        """See Dialer."""
        return GrpcWorkerAdminLink(address, self._way)

    def supervisor(self, address: str) -> SupervisorLink:
        """See Dialer."""
        return _GrpcSupervisorLink(address, self._way)


class _GrpcPrefillStream(PrefillStream):
    def __init__(
        self,
        call: grpc.aio.UnaryStreamCall[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
        calls: TypedCalls,
    ) -> None:
        self._call = call
        self._calls = calls

    async def next(self) -> handoff_pb2.PrefillEvent | None:
        with self._calls:
            event = await self._call.read()
        return event if isinstance(event, handoff_pb2.PrefillEvent) else None

    def close(self) -> None:
        self._call.cancel()


class _GrpcPrefillLink(PrefillLink):
    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._stub = handoff_pb2_grpc.PrefillWorkerStub(self._channel)

    async def shake_hands(
        self, request: handoff_pb2.HandshakeRequest, *, timeout_s: float
    ) -> handoff_pb2.HandshakeResponse:
        return await self._calls.ask(self._stub.Handshake, request, timeout_s)

    def prefill(self, request: handoff_pb2.PrefillRequest, deadline: Deadline) -> PrefillStream:
        timeout_s = None if math.isinf(deadline.at_s) else deadline.remaining_s
        call = self._stub.Prefill(request, timeout=timeout_s)
        return _GrpcPrefillStream(call, self._calls)

    async def lost(self) -> None:
        while (state := self._channel.get_state()) is grpc.ChannelConnectivity.READY:
            await self._channel.wait_for_state_change(state)

    async def close(self) -> None:
        await self._channel.close()


class _GrpcPoolLink(PoolLink):
    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._stub = handoff_pb2_grpc.PrefillWorkerStub(self._channel)

    async def pool(
        self, request: handoff_pb2.PoolRequest, deadline: Deadline
    ) -> handoff_pb2.PoolResponse:
        timeout_s = None if math.isinf(deadline.at_s) else deadline.remaining_s
        return await self._calls.ask(self._stub.Pool, request, timeout_s)

    async def close(self) -> None:
        await self._channel.close()


class _GrpcPrefixCacheLink(PrefixCacheLink):
    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._stub = worker_pb2_grpc.PrefixCacheStub(self._channel)

    async def hand_on(
        self, request: worker_pb2.HandOnRequest, *, timeout_s: float
    ) -> worker_pb2.HandOnReport:
        return await self._calls.ask(self._stub.HandOn, request, timeout_s)

    async def take_over(
        self, request: worker_pb2.TakeOverRequest, *, timeout_s: float
    ) -> worker_pb2.TakeOverReport:
        return await self._calls.ask(self._stub.TakeOver, request, timeout_s)

    async def close(self) -> None:
        await self._channel.close()


class _GrpcSessionLink(SessionLink):
    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._call = worker_pb2_grpc.DecodeWorkerStub(self._channel).Session()

    async def read(self) -> worker_pb2.WorkerFrame | None:
        with self._calls:
            frame = await self._call.read()
        return frame if isinstance(frame, worker_pb2.WorkerFrame) else None

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        try:
            with self._calls:
                await self._call.write(message)
        except WorkerLost:
            if self._call.done():
                await self.read()  # raises what the other side has ended it with
            raise

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()


class _GrpcMembershipLink(MembershipLink):
    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._stub = membership_pb2_grpc.MembershipStub(self._channel)

    async def join(
        self, request: membership_pb2.JoinRequest, *, timeout_s: float
    ) -> membership_pb2.JoinResponse:
        return await self._calls.ask(self._stub.Join, request, timeout_s)

    async def beat(
        self, request: membership_pb2.BeatRequest, *, timeout_s: float
    ) -> membership_pb2.BeatResponse:
        return await self._calls.ask(self._stub.Beat, request, timeout_s)

    async def leave(self, request: membership_pb2.LeaveRequest, *, timeout_s: float) -> None:
        await self._calls.ask(self._stub.Leave, request, timeout_s)

    async def close(self) -> None:
        await self._channel.close()


class _GrpcSupervisorLink(SupervisorLink):
    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._stub = membership_pb2_grpc.MembershipStub(self._channel)

    async def report(
        self, report: membership_pb2.SupervisorReport, *, timeout_s: float
    ) -> membership_pb2.SupervisorReportTaken:
        return await self._calls.ask(self._stub.Supervised, report, timeout_s)

    async def hand_on(
        self, order: membership_pb2.HandOnOrder, *, timeout_s: float
    ) -> membership_pb2.HandOnAnswer:
        return await self._calls.ask(self._stub.HandOnCache, order, timeout_s)

    async def close(self) -> None:
        await self._channel.close()
