"""A whole router's gRPC port, with strangers on it who open calls and send nothing, or a little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.config import RouterOptions
from cluster.generation import EngineLoad
from cluster.membership.client import CALL_TIMEOUT_S, MembershipClient, Pulse
from cluster.membership.store import ChangeKind, MembershipChange
from cluster.process.background import cancel
from cluster.process.signals import StopRequests
from cluster.rpc import open_channel
from cluster.world import World
from protos import (
    membership_pb2,
    membership_pb2_grpc,
    router_admin_pb2,
    router_admin_pb2_grpc,
)
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.router_process import RouterProcess
from router.text_worker.in_process import InProcessText
from tests.router.front_fakes import byte_model, until
from tests.router.planes import prefill_member

GENERATE = "/splitserve.v1.Inference/Generate"
BEAT = "/splitserve.worker.v1.Membership/Beat"
CHECK = "/grpc.health.v1.Health/Check"
ROOMY = 8 * 1024 * 1024
ONE_PLACE = 128 * 1024 * 1024
"""Bodies so large that a single message fills the memory that is meant for them."""
LEASE_S = RouterOptions().worker_lease_s


@dataclass
class Router:
    """A process with a real fleet plane; notes when it heard of its workers, and what ended."""

    address: str
    plane: FleetPlane
    heard_s: list[float] = field(default_factory=list)
    ends: list[ChangeKind] = field(default_factory=list)

    def note(self, change: MembershipChange) -> None:
        if change.kind is ChangeKind.REPORTED:
            self.heard_s.append(change.state.heard_s)
        elif change.kind is not ChangeKind.JOINED:
            self.ends.append(change.kind)


@asynccontextmanager
async def running(max_body_bytes: int) -> AsyncIterator[Router]:
    options = RouterOptions(port=0, grpc_port=0, max_body_bytes=max_body_bytes, beat_interval_s=0.1)
    model, world = byte_model(), World()
    plane = FleetPlane(options, OwnModel(), world)
    stops = StopRequests()
    process = RouterProcess(options, model, plane, InProcessText(model), stops, world)
    task = asyncio.create_task(process.run())
    await asyncio.wait((task, process.addresses), return_when=asyncio.FIRST_COMPLETED)
    router = Router(process.addresses.result().grpc, plane)
    plane.store.watch(router.note)
    try:
        yield router
    finally:
        stops.on_sigint()
        await task


@asynccontextmanager
async def strangers(address: str, method: str, num: int) -> AsyncIterator[None]:
    """So many connections of one address. Each has a call that sends nothing, and opens another
    one when that is ended."""
    async with AsyncExitStack() as opened:
        channels = [await opened.enter_async_context(open_channel(address)) for _ in range(num)]
        for channel in channels:
            await channel.channel_ready()
        tasks = [asyncio.create_task(opens_calls(channel, method)) for channel in channels]
        try:
            yield
        finally:
            await cancel(tasks)


async def opens_calls(channel: grpc.aio.Channel, method: str) -> None:
    while True:
        await channel.stream_stream(method)().code()


@asynccontextmanager
async def worker(address: str) -> AsyncIterator[None]:
    def pulse() -> Pulse:
        return Pulse(load=EngineLoad(), draining=False, kv_transport="nixl")

    client = MembershipClient(address, prefill_member(), pulse, World())
    task = asyncio.create_task(client.run())
    try:
        yield
    finally:
        await cancel([task])
        await client.leave()


@pytest.mark.parametrize(("method", "num_strangers"), [(GENERATE, 60), (CHECK, 60), (BEAT, 120)])
@pytest.mark.parametrize("max_body_bytes", [ROOMY, ONE_PLACE])
async def test_a_worker_joins_and_beats_whatever_strangers_have_open(
    max_body_bytes: int, method: str, num_strangers: int
) -> None:
    async with running(max_body_bytes) as router, strangers(router.address, method, num_strangers):
        async with worker(router.address):
            await until(lambda: len(router.heard_s) >= 10, "ten beats have come")
        gaps_s = [later - earlier for earlier, later in pairwise(router.heard_s)]
        assert max(gaps_s) < LEASE_S
        assert set(router.ends) <= {ChangeKind.LEFT}


@pytest.mark.parametrize("max_body_bytes", [ROOMY, ONE_PLACE])
async def test_probes_and_operators_are_answered_whatever_strangers_have_open(
    max_body_bytes: int,
) -> None:
    async with (
        running(max_body_bytes) as router,
        strangers(router.address, GENERATE, 60),
        open_channel(router.address) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        members = membership_pb2_grpc.MembershipStub(channel)
        admin = router_admin_pb2_grpc.RouterAdminStub(channel)
        for _ in range(5):
            await health.Check(health_pb2.HealthCheckRequest(), timeout=CALL_TIMEOUT_S)
            await members.Members(membership_pb2.MembersRequest(), timeout=CALL_TIMEOUT_S)
            asked = router_admin_pb2.ExplainRequest(request_id="nobody's")
            await admin.Explain(asked, timeout=CALL_TIMEOUT_S)
