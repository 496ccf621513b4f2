"""A worker process of either role, from its start to its end.

    gRPC listens (not ready) -> model found -> engine loaded -> own address known (whereabouts.py)
    -> metrics, events -> ready -> join; a spare joins later, when it is promoted (own_place.py)
    SIGTERM: refuse, finish what runs, hand on what is cached -> leave -> end streams -> stop the
    engine -> exit 0
    the engine dies, at any time: health goes down, requests end with WorkerLost -> exit 1

What was started is closed in reverse, within SHUTDOWN_TIMEOUT_S: a close that hangs ends with the
process. The supervisor restarts a process that exits with 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cluster.config import WorkerOptions
from cluster.errors import InternalError
from cluster.identity import WorkerKey, new_incarnation
from cluster.join_guard import join_guards
from cluster.kv_events.keys import EventKeys
from cluster.kv_events.publisher import KvEventPublisher
from cluster.locks import check_worker
from cluster.logs import configure_logging, get_logger
from cluster.metrics_server import MetricsServer
from cluster.models.card import ModelCard
from cluster.process.background import Background, Loss, cancel, until_one_ends
from cluster.process.end_limit import EndLimit
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.process.loop_lag import LoopLag
from cluster.process.signals import EndNotice, StopRequests, listen_for_signals, no_limit
from cluster.process.startup import report_leaving, report_life, report_ready
from cluster.process.stopping import exit_code_of, finish_requests
from cluster.process.thread_call import exit_past_calls
from cluster.rpc import RpcServer
from cluster.tls.servers import fleet_credentials
from cluster.tracing.tracing import Tracing
from cluster.world import World
from engine.contract.messages import Frame, Ready
from engine.contract.spec import EngineSpec
from worker.admin import AdminSubject, WorkerAdmin
from worker.drafter_card import find_drafter
from worker.engine.client import EngineClient
from worker.engine.host import EngineHost
from worker.engine.link import EngineLink
from worker.metrics import WorkerMetrics
from worker.open_shelf import open_shelf
from worker.own_place import OwnPlace
from worker.role import RoleService, RunningWorker
from worker.start import (
    facts_of,
    find_model,
    member_of,
    pairing_of,
    report_load,
    spec_of,
)
from worker.whereabouts import Whereabouts

STOP_GRACE_S = 1.0
"""For streams whose last message is being written."""
SHUTDOWN_TIMEOUT_S = 20.0
"""For all that is closed together; an engine that has to be killed takes 15 of them."""
LinkFactory = Callable[[str, EngineSpec], EngineLink]
ModelFinder = Callable[[WorkerOptions], Awaitable[ModelCard]]
_log = get_logger("worker")


def run_worker(options: WorkerOptions, role: RoleService, world: World) -> int:
    """Runs until a signal (0) or the engine's death (1). Raises what kept it from starting."""
    configure_logging(options.worker_id or options.role.value)
    return exit_past_calls(asyncio.run(_run(options, role, world)))


async def _run(options: WorkerOptions, role: RoleService, world: World) -> int:
    surroundings = Surroundings(world=world, on_end=EndLimit(SHUTDOWN_TIMEOUT_S).begin)
    return await WorkerProcess(options, role, surroundings).run()


def start_engine_process(entry_module: str, spec: EngineSpec) -> EngineLink:
    """The LinkFactory of real workers."""
    return EngineClient(entry_module=entry_module, spec=spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a worker takes from outside; replaced where no model is wanted."""

    world: World = field(default_factory=World)
    find_model: ModelFinder = find_model
    make_link: LinkFactory = start_engine_process
    on_end: EndNotice = no_limit


class WorkerProcess:
    """One worker; `run` once, on the loop that made it. `stop_requests` is what signals set."""

    def __init__(
        self,
        options: WorkerOptions,
        role: RoleService,
        surroundings: Surroundings,
    ) -> None:
        check_worker(options)
        self.stop_requests = StopRequests(surroundings.on_end)
        self.address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._options = options
        self._role = role
        self._surroundings = surroundings
        self._server = RpcServer(
            options.host, options.port, guards=join_guards(), credentials=fleet_credentials()
        )
        world = surroundings.world
        self._lifespan = Lifespan(clock=world.clock)
        self._event_keys = EventKeys.new()
        self._lag = LoopLag()
        self._closers = contextlib.AsyncExitStack()
        self._background = Background(self._on_loss, clock=world.clock, sleep=world.sleep)
        self._place = OwnPlace(options, self._lifespan, self._server, self._background, world)
        self._admin = WorkerAdmin(self._lifespan, self._begin_drain, self._place.take)

    def why_not_ready(self) -> str | None:
        """See OwnPlace; for probes."""
        return self._place.why_not_ready()

    async def run(self) -> int:
        """See the head of the file. Raises the error of a start that failed."""
        with listen_for_signals(self.stop_requests):
            async with self._closers:
                self._closers.push_async_callback(self._background.close)
                self._background.need("signs of life", report_life(self._surroundings.world.sleep))
                try:
                    await self._run()
                finally:
                    self.stop_requests.on_close()
                    self._lifespan.advance(ProcessState.STOPPED)
                    await self._server.set_ready(False)
        return exit_code_of(self.stop_requests)

    async def _run(self) -> None:
        stop, stop_now = self.stop_requests.drain, self.stop_requests.stop_now
        has_started = await until_one_ends(self._start(), stop.wait()) == 0
        if not has_started:
            return
        await stop.wait()
        self._begin_drain()
        await asyncio.gather(
            finish_requests(self._lifespan, self.stop_requests, self._options.drain_timeout_s),
            until_one_ends(self._place.hand_on(self._options.hand_on_s), stop_now.wait()),
        )

    async def _start(self) -> None:
        """Everything up, in the order in which each needs the former."""
        self._closers.push_async_callback(self._lag.close)
        self._lag.start()
        whereabouts = Whereabouts(self._options, self._surroundings.world)
        port = await self._listen()
        card = await self._surroundings.find_model(self._options)
        key = await self._key(whereabouts, port)
        spec = spec_of(self._options, card, key, await find_drafter(self._options, card))
        engine = EngineHost(self._surroundings.make_link(self._role.entry_module, spec))
        publisher = self._publisher_for(engine)
        self._closers.push_async_callback(publisher.stop)
        self._closers.push_async_callback(engine.stop)  # before the publisher that it feeds
        self._admin.open_for(AdminSubject(key, self._options.role, engine))
        ready = await engine.start(report_load)
        self._background.need("engine", _until_lost(engine))
        host = await whereabouts.host()  # a router that is not there yet costs no loading time
        metrics = WorkerMetrics(self._options.role, key.worker_id)
        self._lag.publish(metrics.registry)
        metrics_port = self._serve_metrics(metrics)
        address, events = f"{host}:{port}", await publisher.start(host)
        engine.observe(_telling(publisher, metrics))
        self._open_role(engine, ready, spec, metrics)
        shelf = await open_shelf(
            self._options, card, engine, self._place, self._background, metrics.registry
        )
        self._admin.has_adapters(shelf)
        name = self._options.model.name_of(card.name)
        member = member_of(
            spec,
            ready,
            address=address,
            events=events,
            event_keys=self._event_keys.of_readers,
            model=name,
            pid=os.getpid(),
            pool=self._options.pool or "",
        )
        self._closers.push_async_callback(self._leave)
        await self._place.offer(member, engine)
        facts = facts_of(spec, ready, metrics_port=metrics_port)
        _log.info(self._lifespan.state.value, address=address, **facts)
        report_ready(address, state=self._lifespan.state.value, **facts)
        self.address.set_result(address)

    async def _listen(self) -> int:
        self._role.register(self._server)
        self._admin.register(self._server)
        port = await self._server.start()
        self._closers.push_async_callback(self._server.stop, STOP_GRACE_S)
        return port

    async def _key(self, whereabouts: Whereabouts, port: int) -> WorkerKey:
        """A worker without a name of its own is called by its address."""
        name = self._options.worker_id
        if name is None:
            name = f"{self._options.role}-{await whereabouts.host()}-{port}"
        return WorkerKey(name, new_incarnation())

    def _serve_metrics(self, metrics: WorkerMetrics) -> int:
        probes = {"/live": self._lag.why_it_stands, "/ready": self.why_not_ready}
        port = self._options.metrics_port
        page = MetricsServer(self._options.host, port, metrics.registry, probes)
        self._closers.callback(page.close)
        serving = self._background.keep("metrics", page.serve)
        self._closers.push_async_callback(cancel, (serving,))
        return page.port

    def _publisher_for(self, engine: EngineHost) -> KvEventPublisher:
        own, keys = self._options, self._event_keys
        return KvEventPublisher(
            *(own.host, own.kv_events_port, own.kv_replay_port),
            engine.snapshot,
            keys=keys,
            names=lambda: {it.adapter.digest: it.adapter.name for it in self._place.adapters()},
        )

    def _open_role(
        self, engine: EngineHost, ready: Ready, spec: EngineSpec, metrics: WorkerMetrics
    ) -> None:
        self._role.open(
            RunningWorker(
                key=WorkerKey(spec.worker_id, spec.incarnation),
                engine=engine,
                ready=ready,
                pairing=pairing_of(spec, ready),
                lifespan=self._lifespan,
                metrics=metrics,
                tracing=self._traced(spec, metrics),
                pooling="" if spec.pooling is None else spec.pooling.kind.value,
            )
        )
        self._closers.push_async_callback(self._role.close)

    def _traced(self, spec: EngineSpec, metrics: WorkerMetrics) -> Tracing | None:
        """Raises ConfigError for a collector that cannot be asked."""
        name, role = f"{spec.worker_id}/{spec.incarnation[:8]}", self._options.role.value
        world = self._surroundings.world
        tracing = Tracing.of(self._options.traces, role, name, metrics.registry, world)
        if tracing is not None:
            self._closers.push_async_callback(tracing.close)
            tracing.start()
        return tracing

    async def _leave(self) -> None:
        """One that ends by itself is started again, and what is held of it stays."""
        await self._place.leave(was_asked=self.stop_requests.loss is None)

    def _on_loss(self, loss: Loss) -> None:
        """Whoever has a spare worker promotes it at once: an end takes a second, or hangs."""
        report_leaving(loss.cause or InternalError(str(loss)))
        self.stop_requests.on_loss(loss)

    def _begin_drain(self) -> None:
        """Idempotent; by SIGTERM or by an operator's call."""
        if not self._lifespan.advance(ProcessState.DRAINING):
            return
        _log.info("draining", num_requests=self._lifespan.num_admitted)
        self._background.once("health", self._server.set_ready(False))
        self._place.beat_soon()
        report_leaving()


def _telling(publisher: KvEventPublisher, metrics: WorkerMetrics) -> Callable[[Frame], None]:
    """What becomes of a frame beside its requests' part: events and metrics."""

    def observe(frame: Frame) -> None:
        if frame.cache is not None:
            publisher.publish(frame.cache)
        if frame.load is not None:
            metrics.engine_load(frame.load)
        if frame.experts is not None:
            metrics.experts_are(frame.experts)
        if frame.draft_numbers is not None:
            metrics.drafts_were(frame.draft_numbers)
        if frame.rank_waits:
            metrics.rank_waits(frame.rank_waits)
        if frame.kv_transport:
            metrics.transport_is(frame.kv_transport)

    return observe


async def _until_lost(engine: EngineHost) -> None:
    raise await engine.lost
