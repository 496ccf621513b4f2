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
)


class GrpcOperatorLink(OperatorLink):
    """See OperatorLink. One channel, opened when it is first used."""

    def __init__(self, address: str, way: FleetWay) -> None:
        self._calls = TypedCalls(address, way)
        self._channel = way.open(address)
        self._membership = membership_pb2_grpc.MembershipStub(self._channel)
        self._admin = router_admin_pb2_grpc.RouterAdminStub(self._channel)
        self._watch = fleet_watch_pb2_grpc.FleetWatchStub(self._channel)

    async def members(self, *, timeout_s: float) -> membership_pb2.MembersResponse:
        request = membership_pb2.MembersRequest()
        return await self._calls.ask(self._membership.Members, request, timeout_s)

    async def scale(
        self, order: membership_pb2.ScaleOrder, *, timeout_s: float
    ) -> membership_pb2.ScaleAnswer:
        return await self._calls.ask(self._membership.Scale, order, timeout_s)

    async def hold(
        self, order: membership_pb2.HoldOrder, *, timeout_s: float
    ) -> membership_pb2.HoldAnswer:
        return await self._calls.ask(self._membership.Hold, order, timeout_s)

    async def hand_on(
        self, order: membership_pb2.HandOnOrder, *, timeout_s: float
    ) -> membership_pb2.HandOnAnswer:
        return await self._calls.ask(self._membership.HandOnCache, order, timeout_s)

    async def order_load(
        self, request: worker_pb2.LoadAdapterRequest, *, timeout_s: float
    ) -> membership_pb2.AdapterAnswer:
        return await self._calls.ask(self._membership.LoadAdapter, request, timeout_s)

    async def order_unload(
        self, request: worker_pb2.UnloadAdapterRequest, *, timeout_s: float
    ) -> membership_pb2.AdapterAnswer:
        return await self._calls.ask(self._membership.UnloadAdapter, request, timeout_s)

    async def explain(
        self, request: router_admin_pb2.ExplainRequest, *, timeout_s: float
    ) -> router_admin_pb2.ExplainResponse:
        return await self._calls.ask(self._admin.Explain, request, timeout_s)

    async def price(
        self, request: router_admin_pb2.PriceRequest, *, timeout_s: float
    ) -> router_admin_pb2.Decision:
        return await self._calls.ask(self._admin.Price, request, timeout_s)

    async def trace(
        self, request: router_admin_pb2.TraceRequest, *, timeout_s: float
    ) -> router_admin_pb2.TraceResponse:
        return await self._calls.ask(self._admin.Trace, request, timeout_s)

    async def options(self, *, timeout_s: float) -> router_admin_pb2.OptionsResponse:
        request = router_admin_pb2.OptionsRequest()
        return await self._calls.ask(self._admin.Options, request, timeout_s)

    async def requests(
        self, request: fleet_watch_pb2.RequestsRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.RequestsResponse:
        return await self._calls.ask(self._watch.Requests, request, timeout_s)

    async def links(
        self, request: fleet_watch_pb2.LinksRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.LinksResponse:
        return await self._calls.ask(self._watch.Links, request, timeout_s)

    async def events(
        self, request: fleet_watch_pb2.EventsRequest, *, timeout_s: float
    ) -> fleet_watch_pb2.EventsResponse:
        return await self._calls.ask(self._watch.Events, request, timeout_s)

    async def work(self, *, timeout_s: float) -> fleet_watch_pb2.WorkResponse:
        request = fleet_watch_pb2.WorkRequest()
        return await self._calls.ask(self._watch.Work, request, timeout_s)

    async def lately(self, *, timeout_s: float) -> fleet_watch_pb2.LatelyResponse:
        request = fleet_watch_pb2.LatelyRequest()
        return await self._calls.ask(self._watch.Lately, request, timeout_s)

    async def pressure(self, *, timeout_s: float) -> fleet_watch_pb2.PressureResponse:
        request = fleet_watch_pb2.PressureRequest()
        return await self._calls.ask(self._watch.Pressure, request, timeout_s)

    async def planned(self, word: fleet_watch_pb2.PlannerWord, *, timeout_s: float) -> None:
        await self._calls.ask(self._watch.Planned, word, timeout_s)

    async def worker_status(
        self, request: router_admin_pb2.WorkerStatusRequest, *, timeout_s: float
    ) -> worker_pb2.StatusResponse:
        return await self._calls.ask(self._admin.WorkerStatus, request, timeout_s)

    async def try_pair(
        self, request: router_admin_pb2.TryPairRequest, *, timeout_s: float
    ) -> router_admin_pb2.PairTrial:
        return await self._calls.ask(self._admin.TryPair, request, timeout_s)

    async def metrics(self, *, timeout_s: float) -> str:
        request = router_admin_pb2.MetricsRequest()
        reply: router_admin_pb2.MetricsResponse = await self._calls.ask(
            self._admin.Metrics, request, timeout_s
        )
        return reply.text

    async def close(self) -> None:
        await self._channel.close()
