"""What an operator may ask of this router: about single requests, itself, and single workers."""

from __future__ import annotations

import asyncio

import grpc

from cluster.config import RouterOptions
from cluster.deadline import Clock
from cluster.errors import SplitserveError
from cluster.rpc import abort
from protos import router_admin_pb2, router_admin_pb2_grpc, worker_pb2
from router.control.decision_message import decision_to_wire, unrouted_to_wire
from router.control.fleet_relay import FleetRelay
from router.control.options_message import options_to_wire
from router.control.route_prices import RoutePrices
from router.control.trace_message import traces_of
from router.telemetry.decisions import DecisionLog

ADMIN_SERVICE_NAME = "splitserve.worker.v1.RouterAdmin"
SLICE = 16
"""Requests that are told in one turn of the loop: half a millisecond."""


class RouterAdminService(router_admin_pb2_grpc.RouterAdminServicer):
    """The gRPC servicer; reads only, but for a prompt that tries a pair of workers."""

    def __init__(
        self,
        decisions: DecisionLog,
        prices: RoutePrices,
        clock: Clock,
        options: RouterOptions,
        relay: FleetRelay,
    ) -> None:
        """`clock`: by which requests are stamped."""
        self._options = options_to_wire(options)
        self._decisions = decisions
        self._prices = prices
        self._clock = clock
        self._relay = relay

    async def Explain(
        self, request: router_admin_pb2.ExplainRequest, context: grpc.aio.ServicerContext
    ) -> router_admin_pb2.ExplainResponse:
        """All that is kept under the client's id; an unknown id has nothing."""
        if not request.request_id:
            return router_admin_pb2.ExplainResponse()
        routed = map(decision_to_wire, self._decisions.known_as(request.request_id))
        others = map(unrouted_to_wire, self._decisions.unrouted(request.request_id))
        return router_admin_pb2.ExplainResponse(decisions=[*routed, *others])

    async def Trace(
        self, request: router_admin_pb2.TraceRequest, context: grpc.aio.ServicerContext
    ) -> router_admin_pb2.TraceResponse:
        """Where the time went, of what is kept; in slices, between which others have the loop."""
        told = router_admin_pb2.TraceResponse()
        for at, trace in enumerate(traces_of(self._decisions, request, self._clock)):
            if at % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            told.traces.append(trace)
        return told

    async def Options(
        self, request: router_admin_pb2.OptionsRequest, context: grpc.aio.ServicerContext
    ) -> router_admin_pb2.OptionsResponse:
        """What this router was started with."""
        return self._options

    async def Price(
        self, request: router_admin_pb2.PriceRequest, context: grpc.aio.ServicerContext
    ) -> router_admin_pb2.Decision:
        """As a request would be routed now; its status is the one that the request would have."""
        try:
            return decision_to_wire(await self._prices.price(request, context.peer()))
        except SplitserveError as error:
            await abort(context, error)

    async def WorkerStatus(
        self, request: router_admin_pb2.WorkerStatusRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.StatusResponse:
        """What the worker says, or why it says nothing."""
        try:
            return await self._relay.status(request)
        except SplitserveError as error:
            await abort(context, error)

    async def TryPair(
        self, request: router_admin_pb2.TryPairRequest, context: grpc.aio.ServicerContext
    ) -> router_admin_pb2.PairTrial:
        """How it went, or why it did not go."""
        try:
            return await self._relay.try_pair(request)
        except SplitserveError as error:
            await abort(context, error)

    async def Metrics(
        self, request: router_admin_pb2.MetricsRequest, context: grpc.aio.ServicerContext
    ) -> router_admin_pb2.MetricsResponse:
        """As on the page for Prometheus."""
        return router_admin_pb2.MetricsResponse(text=self._relay.metrics())
