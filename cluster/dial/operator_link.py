"""The OperatorLink of a real fleet."""

from __future__ import annotations

from cluster.dial.dialer import OperatorLink
from cluster.dial.way import FleetWay, TypedCalls
from protos import (
    fleet_watch_pb2,
    fleet_watch_pb2_grpc,
    membership_pb2,
    membership_pb2_grpc,
    router_admin_pb2,
    router_admin_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)


class GrpcOperatorLink(OperatorLink):
    """See OperatorLink. One channel, opened when it is first used."""

    def __init__(self, address: str, way: FleetWay) -> None:
        self._typed = TypedCalls(address, way)
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

    async def hold(
        self, order: membership_pb2.HoldOrder, *, timeout_s: float
    ) -> membership_pb2.HoldAnswer:
        stub = membership_pb2_grpc.MembershipStub(self._channel)
        with self._typed:
            reply: membership_pb2.HoldAnswer = await stub.Hold(order, timeout=timeout_s)
        return reply

    async def hand_on(
        self, order: membership_pb2.HandOnOrder, *, timeout_s: float
    ) -> membership_pb2.HandOnAnswer:
        stub = membership_pb2_grpc.MembershipStub(self._channel)
        with self._typed:
            reply: membership_pb2.HandOnAnswer = await stub.HandOnCache(order, timeout=timeout_s)
        return reply

    async def load_adapter(
        self, request: worker_pb2.LoadAdapterRequest, *, timeout_s: float
    ) -> worker_pb2.LoadAdapterResponse:
        stub = worker_pb2_grpc.WorkerAdminStub(self._channel)
        with self._typed:
            reply: worker_pb2.LoadAdapterResponse = await stub.LoadAdapter(
                request, timeout=timeout_s
            )
        return reply

    async def unload_adapter(
        self, request: worker_pb2.UnloadAdapterRequest, *, timeout_s: float
    ) -> worker_pb2.UnloadAdapterResponse:
        stub = worker_pb2_grpc.WorkerAdminStub(self._channel)
        with self._typed:
            reply: worker_pb2.UnloadAdapterResponse = await stub.UnloadAdapter(
                request, timeout=timeout_s
            )
        return reply

    async def order_load(
        self, request: worker_pb2.LoadAdapterRequest, *, timeout_s: float
    ) -> membership_pb2.AdapterAnswer:
        stub = membership_pb2_grpc.MembershipStub(self._channel)
        with self._typed:
            reply: membership_pb2.AdapterAnswer = await stub.LoadAdapter(request, timeout=timeout_s)
        return reply

    async def order_unload(
        self, request: worker_pb2.UnloadAdapterRequest, *, timeout_s: float
    ) -> membership_pb2.AdapterAnswer:
        stub = membership_pb2_grpc.MembershipStub(self._channel)
        with self._typed:
            reply: membership_pb2.AdapterAnswer = await stub.UnloadAdapter(
                request, timeout=timeout_s
            )
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

    async def options(self, *, timeout_s: float) -> router_admin_pb2.OptionsResponse:
        stub = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        request = router_admin_pb2.OptionsRequest()
        with self._typed:
            reply: router_admin_pb2.OptionsResponse = await stub.Options(request, timeout=timeout_s)
        return reply

    async def requests(
        self, request: fleet_watch_pb2.RequestsRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.RequestsResponse:
        stub = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)
        with self._typed:
            reply: fleet_watch_pb2.RequestsResponse = await stub.Requests(
                request, timeout=timeout_s
            )
        return reply

    async def links(
        self, request: fleet_watch_pb2.LinksRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.LinksResponse:
        stub = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)
        with self._typed:
            reply: fleet_watch_pb2.LinksResponse = await stub.Links(request, timeout=timeout_s)
        return reply

    async def events(
        self, request: fleet_watch_pb2.EventsRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.EventsResponse:
        stub = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)
        with self._typed:
            reply: fleet_watch_pb2.EventsResponse = await stub.Events(request, timeout=timeout_s)
        return reply

    async def work(self, *, timeout_s: float) -> fleet_watch_pb2.WorkResponse:
        stub = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)
        request = fleet_watch_pb2.WorkRequest()
        with self._typed:
            reply: fleet_watch_pb2.WorkResponse = await stub.Work(request, timeout=timeout_s)
        return reply

    async def lately(self, *, timeout_s: float) -> fleet_watch_pb2.LatelyResponse:
        stub = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)
        request = fleet_watch_pb2.LatelyRequest()
        with self._typed:
            reply: fleet_watch_pb2.LatelyResponse = await stub.Lately(request, timeout=timeout_s)
        return reply

    async def pressure(self, *, timeout_s: float) -> fleet_watch_pb2.PressureResponse:
        stub = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)
        request = fleet_watch_pb2.PressureRequest()
        with self._typed:
            reply: fleet_watch_pb2.PressureResponse = await stub.Pressure(
                request, timeout=timeout_s
            )
        return reply

    async def planned(self, word: fleet_watch_pb2.PlannerWord, *, timeout_s: float) -> None:
        stub = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)
        with self._typed:
            await stub.Planned(word, timeout=timeout_s)

    async def status(
        self, request: worker_pb2.StatusRequest, *, timeout_s: float
    ) -> worker_pb2.StatusResponse:
        stub = worker_pb2_grpc.WorkerAdminStub(self._channel)
        with self._typed:
            reply: worker_pb2.StatusResponse = await stub.Status(request, timeout=timeout_s)
        return reply

    async def worker_status(
        self, request: router_admin_pb2.WorkerStatusRequest, *, timeout_s: float
    ) -> worker_pb2.StatusResponse:
        stub = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        with self._typed:
            reply: worker_pb2.StatusResponse = await stub.WorkerStatus(request, timeout=timeout_s)
        return reply

    async def try_pair(
        self, request: router_admin_pb2.TryPairRequest, *, timeout_s: float
    ) -> router_admin_pb2.PairTrial:
        stub = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        with self._typed:
            reply: router_admin_pb2.PairTrial = await stub.TryPair(request, timeout=timeout_s)
        return reply

    async def metrics(self, *, timeout_s: float) -> str:
        stub = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        request = router_admin_pb2.MetricsRequest()
        with self._typed:
            reply: router_admin_pb2.MetricsResponse = await stub.Metrics(request, timeout=timeout_s)
        return reply.text

    async def close(self) -> None:
        await self._channel.close()
