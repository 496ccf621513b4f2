"""A router's control plane in a World of a test's own: no network, and no time but the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import grpc
import pytest
from msgspec import structs

from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from protos import worker_pb2
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.dispatch.stream import Completed
from router.dispatch.time_limits import TimeLimits
from tests.router.dispatch_bench import collect, is_idle, request
from tests.router.fake_decode_worker import ended_frame, tokens_frame
from tests.router.planes import PAIRING, member_of
from tests.scripted_dialer import ScriptedDialer
from tests.virtual_time import VirtualTime, settle

LEASE_S = 3.0
DECODE = member_of(Role.DECODE, "decode-1")


class Stage:
    """A plane with one decode worker that has joined and is connected."""

    def __init__(self) -> None:
        self.time, self.dialer = VirtualTime(), ScriptedDialer()
        world = World(dialer=self.dialer, clock=self.time, sleep=self.time.sleep, chance=Random(1))
        self.plane = FleetPlane(RouterOptions(worker_lease_s=LEASE_S), OwnModel(), world)

    async def begin(self) -> None:
        self.dialer.workers[DECODE.address] = WorkerIdentity(DECODE.key, PAIRING)
        await self.plane.start()
        await self.plane.store.join(DECODE)
        await settle()
        assert self.plane.why_not_ready() is None

    def limits(self) -> TimeLimits:
        return TimeLimits(
            arrived_s=self.time(), first_token_s=30.0, between_tokens_s=30.0, clock=self.time
        )


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a real connection was asked for")

    monkeypatch.setattr(grpc.aio, "insecure_channel", refuse)
    async with running(Stage()) as running_stage:
        yield running_stage


@asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[Stage]:
    await stage.begin()
    yield stage
    await stage.plane.close()


async def test_a_request_is_sent_and_timed_in_a_world_without_network_or_time(
    stage: Stage,
) -> None:
    asked = structs.replace(request(max_tokens=2), limits=stage.limits())
    answer = asyncio.create_task(collect(stage.plane, asked))
    await settle()
    [session] = stage.dialer.sessions
    [submit] = session.submitted
    await stage.time.advance(2.0)
    session.say(tokens_frame(submit.request_id, 5))
    await stage.time.advance(0.5)
    session.say(tokens_frame(submit.request_id, 6, last=True))
    session.say(ended_frame(submit.request_id, made=2))
    *_, completed = await answer
    assert isinstance(completed, Completed)
    assert completed.timing.ttft_ms == 2000.0
    assert completed.timing.itl_ms == 500.0
    assert is_idle(stage.plane)


async def test_a_lost_worker_is_dialled_at_growing_intervals_until_its_lease_has_run_out(
    stage: Stage,
) -> None:
    stage.dialer.workers.clear()
    stage.dialer.sessions[0].die()
    await settle()
    assert stage.plane.why_not_ready() == "none of 1 decode workers is connected and takes new work"
    await stage.time.advance(LEASE_S)
    assert [item.key for item in stage.plane.fleet.members] == [DECODE.key]
    assert stage.dialer.num_refused == 5  # after 0.1, 0.3, 0.7, 1.5 and 2.5 s
    await stage.time.advance(0.3)
    assert stage.plane.fleet.members == []
    await stage.time.advance(60.0)
    assert stage.dialer.num_refused == 5


async def test_a_worker_that_is_heard_keeps_its_lease_for_as_long_as_it_likes(
    stage: Stage,
) -> None:
    for _ in range(20):
        await stage.time.advance(LEASE_S - 0.5)
        load = worker_pb2.EngineLoad(num_running=1)
        stage.dialer.sessions[0].say(worker_pb2.WorkerFrame(load=load))
    [item] = stage.plane.fleet.members
    await settle()
    assert stage.plane.fleet.state_of(item) == "ready"
    await stage.time.advance(LEASE_S + 0.5)
    assert stage.plane.fleet.state_of(item) == "silent"
