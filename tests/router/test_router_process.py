"""A router process with a fleet of fakes: start, readiness, drain, taken ports."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry, Counter

from cluster.config import RouterOptions
from cluster.errors import ConfigError
from cluster.process.background import Loss
from cluster.process.loop_share import LoopShare
from cluster.process.signals import StopRequests
from cluster.rpc import RpcServer, open_channel
from cluster.world import World
from router import main
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.control.route_prices import PromptReader
from router.front.readiness import REMEMBERED_S, ContextLimit
from router.front.served_model import ServedModel
from router.grpc_front.inference_service import SERVICE_NAME
from router.router_process import Addresses, RouterProcess
from router.sharing.circle import CirclePlace
from router.store.shared_store import SharedStore
from router.text_worker.in_process import InProcessText
from tests.free_ports import free_port
from tests.manual_clock import ManualClock
from tests.router.front_fakes import FakeSource, Script, byte_model, hangs, says, until
from tests.router.sharing.memory_store import MemoryStore

NUM_ROUTERS = 2
"""Where they share a store."""
FLEETS_SERVICE = "splitserve.v1.FakeFleet"


@dataclass
class FakeWorkers:
    """Ready or not, as the test says; notes whether it was closed."""

    source: FakeSource
    missing: str | None = None
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    closed: bool = False

    def why_not_ready(self) -> str | None:
        return self.missing

    def register(self, server: RpcServer, reader: PromptReader) -> None:
        """A service without methods."""
        server.add(lambda servicer, to: None, None, FLEETS_SERVICE, always_ready=True)

    async def start(self) -> None:
        Counter("fleet_starts", "Starts.", registry=self.registry).inc()

    async def close(self) -> None:
        self.closed = True


@dataclass
class Running:
    process: RouterProcess
    workers: FakeWorkers
    addresses: Addresses
    task: asyncio.Task[int]


@asynccontextmanager
async def running_router(
    script: Script,
    *,
    shared: SharedStore | None = None,
    model: ServedModel | None = None,
    **options: object,
) -> AsyncIterator[Running]:
    workers = FakeWorkers(FakeSource(script))
    chosen = RouterOptions(port=0, grpc_port=0, **options)  # type: ignore[arg-type]
    model = model or byte_model()
    parts = (chosen, model, workers, InProcessText(model), StopRequests(), World())
    process = RouterProcess(*parts, store=shared, num_routers=lambda: NUM_ROUTERS)
    task = asyncio.create_task(process.run())
    await asyncio.wait((task, process.addresses), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield Running(process, workers, process.addresses.result(), task)
    finally:
        process.stop_requests.on_sigint()
        assert await task == 0
        assert workers.closed


async def test_a_router_serves_http_grpc_and_metrics_and_ends_on_a_signal() -> None:
    async with running_router(says("ok")) as router:
        async with httpx.AsyncClient(base_url=f"http://{router.addresses.http}") as client:
            assert (await client.get("/health")).status_code == 200
            assert "fleet_starts_total 1.0" in (await client.get("/metrics")).text
            answer = await client.post("/v1/completions", json={"prompt": "Hi"})
            assert answer.json()["choices"][0]["text"] == "ok"
        await until_grpc_is(router, health_pb2.HealthCheckResponse.SERVING)


async def test_all_parts_of_a_router_work_in_one_share_of_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    share, others = LoopShare(), list[LoopShare]()
    monkeypatch.setattr(LoopShare, "__init__", lambda other, *_, **__: others.append(other))
    options, model, world = RouterOptions(port=0, grpc_port=0), byte_model(), World()
    place = CirclePlace("one", MemoryStore(ManualClock()))
    plane = FleetPlane(options, OwnModel(), world, circle=place, share=share)
    texts, stops = InProcessText(model), StopRequests()
    process = RouterProcess(options, model, plane, texts, stops, world, share=share)
    assert process._door.share is share and not others


async def test_both_healths_follow_the_workers() -> None:
    async with (
        running_router(says("ok")) as router,
        httpx.AsyncClient(base_url=f"http://{router.addresses.http}") as client,
    ):
        router.workers.missing = "no decode worker has joined"
        answer = await client.get("/health")
        assert answer.status_code == 503
        assert "no decode worker" in answer.json()["error"]["message"]
        await until_grpc_is(router, health_pb2.HealthCheckResponse.NOT_SERVING)


async def test_a_drain_finishes_what_runs_and_refuses_what_is_new() -> None:
    gate = asyncio.Event()

    async def waits(routed: object) -> AsyncIterator[object]:
        await gate.wait()
        async for event in says("late")(routed):  # type: ignore[arg-type]
            yield event

    async with (
        running_router(waits) as router,  # type: ignore[arg-type]
        httpx.AsyncClient(base_url=f"http://{router.addresses.http}") as client,
    ):
        running = asyncio.create_task(client.post("/v1/completions", json={"prompt": "Hi"}))
        await until(lambda: len(router.workers.source.requests) == 1, "the request is dispatched")
        router.process.stop_requests.on_sigterm()
        await until(lambda: router.process.is_draining, "the router drains")
        refused = await client.post("/v1/completions", json={"prompt": "Hi"})
        assert refused.json()["error"]["code"] == "draining"
        assert (await client.get("/health")).status_code == 503
        gate.set()
        assert (await running).json()["choices"][0]["text"] == "late"
        assert await router.task == 0


async def test_a_drain_is_bounded() -> None:
    async with (
        running_router(hangs(), drain_timeout_s=0.1) as router,
        httpx.AsyncClient(base_url=f"http://{router.addresses.http}") as client,
    ):
        running = asyncio.create_task(client.post("/v1/completions", json={"prompt": "Hi"}))
        await until(lambda: len(router.workers.source.requests) == 1, "the request is dispatched")
        router.process.stop_requests.on_sigterm()
        assert await router.task == 0
        await asyncio.gather(running, return_exceptions=True)
        assert router.workers.source.num_closed == 1


async def test_where_the_fleet_has_a_port_its_services_are_nowhere_else() -> None:
    apart = free_port()
    question = health_pb2.HealthCheckRequest(service=FLEETS_SERVICE)
    async with (
        running_router(says("ok"), fleet_port=apart) as router,
        open_channel(router.addresses.grpc) as everybodys,
        open_channel(f"127.0.0.1:{apart}") as fleets,
    ):
        answer = await health_pb2_grpc.HealthStub(fleets).Check(question)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        missing = health_pb2_grpc.HealthStub(everybodys).Check(question)
        assert await missing.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("name", ["port", "grpc_port", "fleet_port"])
async def test_a_taken_port_is_one_clear_error(name: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        options = RouterOptions(**{"port": 0, "grpc_port": 0, name: port})
        model = byte_model()
        workers = FakeWorkers(FakeSource(says("ok")))
        process = RouterProcess(
            options, model, workers, InProcessText(model), StopRequests(), World()
        )
        with pytest.raises(ConfigError, match=str(port)):
            await process.run()


async def test_a_router_that_strangers_reach_does_not_start_without_a_lock() -> None:
    model, workers = byte_model(), FakeWorkers(FakeSource(says("ok")))
    options = RouterOptions(host="0.0.0.0", port=0, grpc_port=0)
    with pytest.raises(ConfigError, match="--api-keys"):
        RouterProcess(options, model, workers, InProcessText(model), StopRequests(), World())


def test_the_context_is_no_longer_than_the_workers_have_room_for() -> None:
    for room, expected in ((2048, 2048), (10_000, 8192), (None, 8192)):
        assert ContextLimit(8192, lambda room=room: room, ManualClock())() == expected


def test_the_workers_room_is_looked_at_once_in_a_moment() -> None:
    rooms, clock = iter([2048, 1024]), ManualClock()
    limit = ContextLimit(8192, lambda: next(rooms), clock)
    assert [limit() for _ in range(100)] == [2048] * 100
    clock.advance(REMEMBERED_S)
    assert [limit() for _ in range(100)] == [1024] * 100


async def until_grpc_is(router: Running, wanted: int) -> None:
    channel: grpc.aio.Channel = open_channel(router.addresses.grpc)
    health = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
    async with asyncio.timeout(5):
        while (await health.Check(request)).status != wanted:
            await asyncio.sleep(0.02)
    await channel.close()


async def test_the_loss_of_something_needed_ends_the_process_with_its_cause() -> None:
    workers = FakeWorkers(FakeSource(hangs()))
    chosen = RouterOptions(port=0, grpc_port=0)
    model = byte_model()
    ends: list[str] = []
    stop_requests = StopRequests(ends.append)
    process = RouterProcess(chosen, model, workers, InProcessText(model), stop_requests, World())
    task = asyncio.create_task(process.run())
    await process.addresses
    process.stop_requests.on_loss(Loss("membership-expiry", ValueError("no clock")))
    assert len(ends) == 1 and "no clock" in ends[0]  # what bounds its end begins with the loss
    process.stop_requests.on_loss(Loss("another", None))
    assert await task == 1
    assert workers.closed
    assert "no clock" in str(process.stop_requests.loss)


HANGING_ROUTER = """
import asyncio
from cluster.process.end_limit import EndLimit
from cluster.process.signals import StopRequests
from tests.router import test_router_process as routers

class HangingWorkers(routers.FakeWorkers):
    async def close(self):
        await asyncio.Event().wait()

async def main():
    model = routers.byte_model()
    stop_requests = StopRequests(EndLimit(0.5).begin)
    process = routers.RouterProcess(
        routers.RouterOptions(port=0, grpc_port=0),
        model,
        HangingWorkers(routers.FakeSource(routers.hangs())),
        routers.InProcessText(model),
        stop_requests,
        routers.World(),
    )
    running = asyncio.create_task(process.run())
    await process.addresses
    stop_requests.on_sigint()
    await running

asyncio.run(main())
"""


def test_a_router_that_hangs_in_its_end_is_gone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING_ROUTER], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "does not come to its end" in done.stdout + done.stderr


async def test_a_signal_ends_a_router_that_still_fetches_its_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, never = threading.Event(), threading.Event()

    def fetch(options: object) -> None:
        begun.set()
        never.wait()

    monkeypatch.setattr(main, "find_text_card", fetch)
    stop_requests = StopRequests()
    finding = asyncio.create_task(main.found_unless_stopped(RouterOptions(), stop_requests))
    await asyncio.to_thread(begun.wait, 60.0)
    stop_requests.on_sigterm()
    try:
        assert await asyncio.wait_for(finding, 60.0) is None
    finally:
        never.set()
