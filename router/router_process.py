"""A router process, from its start to its end.

port bound -> model found, tokenizer loaded -> gRPC and HTTP answer -> ready
SIGTERM: refuse new requests, finish the running ones -> close what was opened, in reverse
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry

from cluster.config import RouterOptions
from cluster.join_token import admitted_tokens
from cluster.locks import check_router, has_strangers, warning_of_strangers
from cluster.logs import get_logger
from cluster.process.background import Background
from cluster.process.freed_memory import FreedMemory
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.process.loop_share import LoopShare
from cluster.process.signals import StopRequests
from cluster.process.startup import report_life, report_ready
from cluster.process.stopping import exit_code_of, finish_requests
from cluster.rpc import RpcServer
from cluster.tls.clients import clients_certificates
from cluster.world import World
from router.api.http.server import HttpServer
from router.api.metrics_listener import metrics_server
from router.api.status_endpoints import StatusEndpoints
from router.app import build_app
from router.control.adapter_orders import AdapterOrders
from router.control.route_prices import PromptReader
from router.dispatch.passing import Passing
from router.dispatch.stream import TokenSource
from router.front.door_terms import bodies_of, limits_of, times_of
from router.front.doors import DoorContext
from router.front.keeping import Keeping
from router.front.limits import Descriptors, shared_descriptors
from router.front.operator_prompts import OperatorPrompts
from router.front.operators import OperatorsPages
from router.front.pipeline import CompletionPipeline
from router.front.readiness import FrontReadiness
from router.front.served_model import ServedModel
from router.front.tenancy import Tenancy
from router.front.text_work import TextWork
from router.grpc_front.grpc_door import GrpcDoor
from router.grpc_front.ports import grpc_ports, public_port_of
from router.page.listener import PageListener
from router.picker.picker_port import picker_of
from router.store.shared_store import SharedStore
from router.telemetry.grammar_metrics import GrammarMetrics
from router.telemetry.request_tracing import RequestTracing
from router.telemetry.store_metrics import watch_store

STOP_GRACE_S = 1.0
"""For streams whose last message is being written."""
READINESS_INTERVAL_S = 0.25
_log = get_logger("router")


class WorkerPlane(Protocol):
    """The workers behind this router: FleetPlane, or in tests a script without a fleet. `start`
    once, then `close` once."""

    @property
    def source(self) -> TokenSource:
        """Runs requests."""
        ...

    @property
    def registry(self) -> CollectorRegistry:
        """The router's metrics."""
        ...

    def why_not_ready(self) -> str | None:
        """None when somebody answers and the router knows what it has to know first, such as its
        workers' caches; else what is missing."""
        ...

    def register(self, server: RpcServer, reader: PromptReader) -> None:
        """Adds the services for workers and operators; before the server starts. `reader` makes
        tokens of the prompts that operators ask about."""
        ...

    async def start(self) -> None:
        """Begins to watch the workers."""
        ...

    async def close(self) -> None:
        """Ends every connection to them; requests that still run end with an error."""
        ...


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running router listens, as host:port."""

    http: str
    grpc: str


class RouterProcess:
    """One router; `run` once, on the loop that made it. `stop_requests` is what signals set."""

    def __init__(
        self,
        options: RouterOptions,
        model: ServedModel,
        workers: WorkerPlane,
        texts: TextWork,
        stop_requests: StopRequests,
        world: World,
        *,
        store: SharedStore | None = None,
        num_routers: Callable[[], int] = lambda: 1,
        share: LoopShare | None = None,
        page: PageListener | None = None,
        passing: Passing | None = None,
        adapter_orders: AdapterOrders | None = None,
    ) -> None:
        """`store`: None where this router shares nothing with others. `num_routers`: how many there
        are, with this one. `share`: see CompletionPipeline. `page`: None where there is none.
        `passing`: for a gateway's port. `adapter_orders`: None where no worker takes any."""
        check_router(options)
        if warning := warning_of_strangers(options):
            _log.warning(warning)
        self.stop_requests = stop_requests
        self.addresses: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
        self._options = options
        self._world, self._model, self._workers = world, model, workers
        self._in_flight = Lifespan.opened("router", world.clock)
        self._tenancy = Tenancy(options, world, workers.registry, store, num_routers)
        lacks = (workers.why_not_ready, texts.why_not_ready, self._tenancy.why_not_ready)
        self._readiness = FrontReadiness(self._in_flight, *lacks)
        self._texts, self._store, self._page = texts, store, page
        self._adapter_orders = adapter_orders
        self._certificates = clients_certificates(options.tls)
        descriptors = shared_descriptors()
        source, chance = workers.source, world.chance
        pipeline = CompletionPipeline(
            *(model, source, texts),
            chance=chance,
            share=share,
            on_grammar_refused=GrammarMetrics(workers.registry).refused,
        )
        self._keeping = Keeping.of(
            options, model, world, pipeline.share, workers.registry, store=store
        )
        self._tracing = RequestTracing.of(options, model.name, workers.registry, world)
        self._door = self._new_door(pipeline, descriptors)
        self._grpc = self._grpc_door(descriptors, passing)

    @property
    def is_draining(self) -> bool:
        """True once new requests are refused."""
        return self._in_flight.is_draining

    async def run(self) -> int:
        """Until a signal: 0; until something needed is lost: 1. Raises ConfigError when a port
        cannot be had."""
        async with contextlib.AsyncExitStack() as closers:
            try:
                await self._open(closers)
                await self.stop_requests.drain.wait()
                await self._drain()
            finally:
                self.stop_requests.on_close()
        return exit_code_of(self.stop_requests)

    async def _open(self, closers: contextlib.AsyncExitStack) -> None:
        """What was opened is closed in reverse: requests that outlived the drain end with the
        workers' error, which the servers still tell to their clients."""
        if self._tracing is not None:
            closers.push_async_callback(self._tracing.tracing.close)
            self._tracing.tracing.start()
        closers.push_async_callback(self._texts.close)
        await self._texts.start()
        status = StatusEndpoints(self._door, self._readiness, self._workers.registry)
        http = self._http_server(status)
        closers.push_async_callback(http.stop)
        metrics = self._metrics_server(status)
        if metrics is not None:
            closers.push_async_callback(metrics.stop)
        closers.push_async_callback(self._grpc.stop, STOP_GRACE_S)
        self._workers.register(self._grpc.fleets, OperatorPrompts(self._door.pipeline))
        grpc_port = await self._grpc.start()
        if self._store is not None:
            of_store = self._new_background()
            closers.push_async_callback(of_store.close)
            of_store.keep("shared store", self._store.run)
            watch_store(self._store, self._workers.registry)
        closers.push_async_callback(self._workers.close)
        await self._workers.start()
        await http.start()
        if metrics is not None:
            await metrics.start()
        background = self._new_background()
        closers.push_async_callback(background.close)
        background.need("grpc-readiness", self._follow_readiness())
        background.need("signs of life", report_life(self._world.sleep))
        self._tenancy.start(background)
        if self._page is not None:
            await self._page.start(lambda: self.is_draining, self.stop_requests.on_loss)
            closers.push_async_callback(self._page.stop)
        if self._keeping is not None:
            background.keep("resumable streams", self._keeping.behind.run)
        background.keep("freed memory", FreedMemory(self._world.sleep).keep_low)
        self._announce(Addresses(self._at(http.port), self._at(grpc_port)), metrics)

    def _new_background(self) -> Background:
        on_loss = self.stop_requests.on_loss
        return Background(on_loss, clock=self._world.clock, sleep=self._world.sleep)

    def _metrics_server(self, status: StatusEndpoints) -> HttpServer | None:
        """None where Prometheus asks at the clients' port."""
        options, port = self._options, self._options.aside.fleet_metrics_port
        if port is None:
            return None
        on_loss, share = self.stop_requests.on_loss, self._door.share
        return metrics_server(status, options.workers_host, port, on_loss=on_loss, share=share)

    def _http_server(self, status: StatusEndpoints) -> HttpServer:
        return HttpServer(
            build_app(self._door, status, self._adapter_orders),
            self._options.host,
            self._options.port,
            self._door.door_limits,
            on_loss=self.stop_requests.on_loss,
            share=self._door.share,
            tls=self._certificates,
        )

    def _new_door(self, pipeline: CompletionPipeline, descriptors: Descriptors) -> DoorContext:
        options, world = self._options, self._world
        return DoorContext(
            model=self._model,
            pipeline=pipeline,
            in_flight=self._in_flight,
            door_limits=limits_of(options, world, descriptors),
            bodies=bodies_of(options, world),
            times=times_of(options, world),
            keyring=self._tenancy.keyring,
            pages=OperatorsPages(has_strangers=has_strangers(options), tokens=admitted_tokens()),
            ignores_unknown=options.ignores_unknown_fields,
            resumption=None if self._keeping is None else self._keeping.resumption,
            tracing=self._tracing,
            chance=world.chance,
        )

    def _grpc_door(self, descriptors: Descriptors, passing: Passing | None) -> GrpcDoor:
        options, door = self._options, self._door
        ports = grpc_ports(options, self._certificates)
        port = public_port_of(options, descriptors)
        picker = picker_of(options, door, passing, port, ports[0].credentials)
        return GrpcDoor(ports, port, door, self._world, picker)

    async def _follow_readiness(self) -> None:
        """gRPC health says what /health says."""
        while True:
            await self._grpc.set_ready(self._readiness.why_not_ready() is None)
            await self._world.sleep(READINESS_INTERVAL_S)

    def _announce(self, addresses: Addresses, metrics: HttpServer | None) -> None:
        options = self._options
        facts = {"grpc": addresses.grpc, "model": self._model.name}
        if options.fleet_port is not None:
            facts["fleet"] = f"{options.workers_host}:{options.fleet_port}"
        if metrics is not None:
            facts["metrics"] = f"{options.workers_host}:{metrics.port}"
        if self._page is not None:
            facts["page"] = self._page.url
        _log.info("ready", http=addresses.http, **facts)
        report_ready(addresses.http, **facts)
        self.addresses.set_result(addresses)

    async def _drain(self) -> None:
        """Running requests may finish; a second signal ends the wait."""
        self._in_flight.advance(ProcessState.DRAINING)
        _log.info("draining", num_requests=self._in_flight.num_admitted)
        await self._grpc.set_ready(False)
        timeout_s = self._options.drain_timeout_s
        await finish_requests(self._in_flight, self.stop_requests, timeout_s)

    def _at(self, port: int) -> str:
        return f"{self._options.host}:{port}"
