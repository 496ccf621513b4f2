"""The WorkerAdminLink of a real fleet."""

from __future__ import annotations

from cluster.dial.dialer import WorkerAdminLink
from cluster.dial.way import FleetWay, TypedCalls
from protos import worker_pb2, worker_pb2_grpc


class GrpcWorkerAdminLink(WorkerAdminLink):
    """See WorkerAdminLink. One channel, opened when it is first used."""

    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._stub = worker_pb2_grpc.WorkerAdminStub(self._channel)

    async def status(
        self, request: worker_pb2.StatusRequest, *, timeout_s: float
    ) -> worker_pb2.StatusResponse:
        return await self._calls.ask(self._stub.Status, request, timeout_s)

    async def load_adapter(
        self, request: worker_pb2.LoadAdapterRequest, *, timeout_s: float
    ) -> worker_pb2.LoadAdapterResponse:
        return await self._calls.ask(self._stub.LoadAdapter, request, timeout_s)

    async def unload_adapter(
        self, request: worker_pb2.UnloadAdapterRequest, *, timeout_s: float
    ) -> worker_pb2.UnloadAdapterResponse:
        return await self._calls.ask(self._stub.UnloadAdapter, request, timeout_s)

    async def promote(self, *, timeout_s: float) -> None:
        await self._calls.ask(self._stub.Promote, worker_pb2.PromoteRequest(), timeout_s)

    async def close(self) -> None:
        await self._channel.close()
