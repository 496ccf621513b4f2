"""The Dialer of a real fleet: gRPC below, typed errors above."""

from __future__ import annotations

import asyncio
import math
from contextlib import AbstractContextManager
from types import TracebackType

import grpc

from cluster.deadline import Deadline
from cluster.dial.dialer import (
    Dialer,
    MembershipLink,
    OperatorLink,
    PrefillLink,
    PrefillStream,
    SessionLink,
    SupervisorLink,
)
from cluster.errors import SplitserveError, WorkerLost
from cluster.join_token import own_token
from cluster.rpc import error_of, open_channel
from cluster.tls.channels import SecureChannels
from cluster.tls.faults import tls_fault
from cluster.tls.fleet import FLEET_NAME, fleet_certificates
from protos import (
    handoff_pb2,
    handoff_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    router_admin_pb2,
    router_admin_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)


class GrpcDialer(Dialer):
    """See Dialer. One channel per link."""

    def __init__(self, token: str | None = None) -> None:
        """`token`: the fleet's, shown with every call; None: this process's own, if it has one."""
        self._way = _Way(token or own_token())

    def prefill_worker(self, address: str) -> PrefillLink:
        """See Dialer."""
        return _GrpcPrefillLink(address, self._way)

    def session(self, address: str) -> SessionLink:
        """See Dialer."""
        return _GrpcSessionLink(address, self._way)

    def membership(self, address: str) -> MembershipLink:
        """See Dialer."""
        return _GrpcMembershipLink(address, self._way)

    def operator(self, address: str) -> OperatorLink:
        """See Dialer."""
        return _GrpcOperatorLink(address, self._way)

    def supervisor(self, address: str) -> SupervisorLink:
        """See Dialer."""
        return _GrpcSupervisorLink(address, self._way)


class _Way:
    """How this process comes to others of its fleet."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self._certificates = fleet_certificates()
        self._secure: SecureChannels | None = None
        if self._certificates is not None:
            self._secure = SecureChannels(self._certificates, FLEET_NAME)

    def open(self, address: str) -> grpc.aio.Channel:
        """The caller closes it."""
        return open_channel(address, token=self._token, secure=self._secure)

    def error_of(self, failure: grpc.aio.AioRpcError, address: str) -> SplitserveError:
        """What a failed call has met; a certificate at fault comes first."""
        error = error_of(failure)
        if self._certificates is None or not isinstance(error, WorkerLost):
            return error
        fault = tls_fault(error.message, address, self._certificates)
        return error if fault is None else WorkerLost(f"{fault} ({error.message})")


class _GrpcPrefillStream(PrefillStream):
    def __init__(
        self,
        call: grpc.aio.UnaryStreamCall[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
        typed: _Typed,
    ) -> None:
        self._call = call
        self._typed = typed

    async def next(self) -> handoff_pb2.PrefillEvent | None:
        with self._typed:
            event = await self._call.read()
        return event if isinstance(event, handoff_pb2.PrefillEvent) else None

    def close(self) -> None:
        self._call.cancel()


class _GrpcPrefillLink(PrefillLink):
    def __init__(self, address: str, way: _Way) -> None:
        self._typed = _Typed(address, way)
        self._channel = way.open(address)
        self._stub = handoff_pb2_grpc.PrefillWorkerStub(self._channel)

    async def shake_hands(
        self, request: handoff_pb2.HandshakeRequest, *, timeout_s: float
    ) -> handoff_pb2.HandshakeResponse:
        with self._typed:
            reply: handoff_pb2.HandshakeResponse = await self._stub.Handshake(
                request, timeout=timeout_s
            )
        return reply

    def prefill(self, request: handoff_pb2.PrefillRequest, deadline: Deadline) -> PrefillStream:
        timeout_s = None if math.isinf(deadline.at_s) else deadline.remaining_s
        call = self._stub.Prefill(request, timeout=timeout_s)
        return _GrpcPrefillStream(call, self._typed)

    async def lost(self) -> None:
        while (state := self._channel.get_state()) is grpc.ChannelConnectivity.READY:
            await self._channel.wait_for_state_change(state)

    async def close(self) -> None:
        await self._channel.close()


class _GrpcSessionLink(SessionLink):
    def __init__(self, address: str, way: _Way) -> None:
        self._typed = _Typed(address, way)
        self._channel = way.open(address)
        self._call = worker_pb2_grpc.DecodeWorkerStub(self._channel).Session()

    async def read(self) -> worker_pb2.WorkerFrame | None:
        with self._typed:
            frame = await self._call.read()
        return frame if isinstance(frame, worker_pb2.WorkerFrame) else None

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        try:
            with self._typed:
                await self._call.write(message)
        except WorkerLost:
            if self._call.done():
                await self.read()  # raises what the other side has ended it with
            raise

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()


class _GrpcMembershipLink(MembershipLink):
    def __init__(self, address: str, way: _Way) -> None:
        self._typed = _Typed(address, way)
        self._channel = way.open(address)
        self._stub = membership_pb2_grpc.MembershipStub(self._channel)

    async def join(
        self, request: membership_pb2.JoinRequest, *, timeout_s: float
    ) -> membership_pb2.JoinResponse:
        with self._typed:
            reply: membership_pb2.JoinResponse = await self._stub.Join(request, timeout=timeout_s)
        return reply

    async def beat(
        self, request: membership_pb2.BeatRequest, *, timeout_s: float
    ) -> membership_pb2.BeatResponse:
        with self._typed:
            reply: membership_pb2.BeatResponse = await self._stub.Beat(request, timeout=timeout_s)
        return reply

    async def leave(self, request: membership_pb2.LeaveRequest, *, timeout_s: float) -> None:
        with self._typed:
            await self._stub.Leave(request, timeout=timeout_s)

    async def close(self) -> None:
        await self._channel.close()


class _GrpcOperatorLink(OperatorLink):
    def __init__(self, address: str, way: _Way) -> None:
        self._typed = _Typed(address, way)
        self._channel = way.open(address)

    async def members(self, *, timeout_s: float) -> membership_pb2.MembersResponse:
        stub = membership_pb2_grpc.MembershipStub(self._channel)
        request = membership_pb2.MembersRequest()
        with self._typed:
            reply: membership_pb2.MembersResponse = await stub.Members(request, timeout=timeout_s)
        return reply

    async def scale(
        self, order: membership_pb2.ScaleOrder, *, timeout_s: float
    ) -> membership_pb2.ScaleAnswer:
        stub = membership_pb2_grpc.MembershipStub(self._channel)
        with self._typed:
            reply: membership_pb2.ScaleAnswer = await stub.Scale(order, timeout=timeout_s)
        return reply

    async def explain(
        self, request: router_admin_pb2.ExplainRequest, *, timeout_s: float
    ) -> router_admin_pb2.ExplainResponse:
        stub = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        with self._typed:
            reply: router_admin_pb2.ExplainResponse = await stub.Explain(request, timeout=timeout_s)
        return reply

    async def price(
        self, request: router_admin_pb2.PriceRequest, *, timeout_s: float
    ) -> router_admin_pb2.Decision:
        stub = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        with self._typed:
            reply: router_admin_pb2.Decision = await stub.Price(request, timeout=timeout_s)
        return reply

    async def trace(
        self, request: router_admin_pb2.TraceRequest, *, timeout_s: float
    ) -> router_admin_pb2.TraceResponse:
        stub = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        with self._typed:
            reply: router_admin_pb2.TraceResponse = await stub.Trace(request, timeout=timeout_s)
        return reply

    async def status(
        self, request: worker_pb2.StatusRequest, *, timeout_s: float
    ) -> worker_pb2.StatusResponse:
        stub = worker_pb2_grpc.WorkerAdminStub(self._channel)
        with self._typed:
            reply: worker_pb2.StatusResponse = await stub.Status(request, timeout=timeout_s)
        return reply

    async def close(self) -> None:
        await self._channel.close()


class _GrpcSupervisorLink(SupervisorLink):
    def __init__(self, address: str, way: _Way) -> None:
        self._typed = _Typed(address, way)
        self._channel = way.open(address)

    async def promote(self, *, timeout_s: float) -> None:
        stub = worker_pb2_grpc.WorkerAdminStub(self._channel)
        with self._typed:
            await stub.Promote(worker_pb2.PromoteRequest(), timeout=timeout_s)

    async def report(
        self, report: membership_pb2.SupervisorReport, *, timeout_s: float
    ) -> membership_pb2.SupervisorReportTaken:
        stub = membership_pb2_grpc.MembershipStub(self._channel)
        with self._typed:
            reply: membership_pb2.SupervisorReportTaken = await stub.Supervised(
                report, timeout=timeout_s
            )
        return reply

    async def close(self) -> None:
        await self._channel.close()


class _Typed(AbstractContextManager[None]):
    """What gRPC raises becomes our own; one for a link and all of its messages.

    A CancelledError is the caller's only if the caller is being cancelled: gRPC raises one as well
    when a call or its channel was closed beside it.
    """

    def __init__(self, address: str, way: _Way) -> None:
        self._address = address
        self._way = way

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(failure, grpc.aio.AioRpcError):
            raise self._way.error_of(failure, self._address) from failure
        if isinstance(failure, (grpc.aio.UsageError, asyncio.InvalidStateError)):
            raise WorkerLost(f"the connection to {self._address} is closed") from failure
        if isinstance(failure, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise WorkerLost(f"the connection to {self._address} was closed") from failure
