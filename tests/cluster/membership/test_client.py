"""The worker's side of membership."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from cluster.errors import PairingMismatch
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.client import LAST_RETRY_S, REFUSED_S, MembershipClient, Pulse
from cluster.membership.member import Member
from cluster.pairing import Pairing
from cluster.process.background import cancel
from cluster.world import World
from tests.scripted_dialer import ScriptedDialer, ScriptedRouter
from tests.virtual_time import VirtualTime
from tests.worker.worker_bench import NotingRouter, noting_router

MEMBER = Member(
    worker_id="decode-a",
    incarnation="one",
    role=Role.DECODE,
    address="127.0.0.1:5000",
    pairing=Pairing(
        weights_digest="aa",
        tokenizer_digest="bb",
        dtype="float32",
        block_size_tokens=16,
        num_layers=2,
        num_kv_heads=2,
        head_dim=8,
    ),
    model="tiny",
    max_context_tokens=128,
)


@pytest.fixture
async def router():
    async with noting_router() as running:
        yield running


class Beating:
    """A client with its task."""

    def __init__(self, router: NotingRouter) -> None:
        self.load = EngineLoad(num_running=1)
        self.client = MembershipClient(router.address, MEMBER, self.take_pulse, World())
        self.task = asyncio.create_task(self.client.run())

    def take_pulse(self) -> Pulse:
        return Pulse(load=self.load, draining=False, kv_transport="nixl")

    async def stop(self) -> None:
        await cancel([self.task])
        await self.client.leave()


async def test_a_worker_joins_then_beats_with_its_load(router):
    beating = Beating(router)
    await router.until(lambda: len(router.beats) >= 2)
    assert [member.worker_id for member in router.joins] == ["decode-a"]
    assert router.beats[0].load.num_running == 1
    assert router.beats[0].kv_transport == "nixl"
    await beating.stop()
    assert len(router.leaves) == 1


async def test_a_worker_that_is_not_known_joins_again(router):
    beating = Beating(router)
    await router.until(lambda: router.beats)
    router.knows = False
    await router.until(lambda: len(router.joins) >= 2)
    router.knows = True
    await beating.stop()


async def test_a_router_that_comes_later_is_joined(router):
    await router.stop()
    beating = Beating(router)
    assert not router.joins
    await router.start(int(router.address.rpartition(":")[2]))
    await router.until(lambda: router.joins)
    await beating.stop()


async def test_a_router_that_restarts_is_beaten_again_without_a_new_join(router):
    beating = Beating(router)
    await router.until(lambda: router.beats)
    await router.stop()
    count = len(router.beats)
    await router.start(int(router.address.rpartition(":")[2]))
    await router.until(lambda: len(router.beats) > count)
    assert len(router.joins) == 1
    await beating.stop()


async def test_leaving_an_unreachable_router_does_not_raise(router):
    beating = Beating(router)
    await router.until(lambda: router.beats)
    await router.stop()
    await beating.stop()


async def test_a_bug_in_what_is_told_does_not_end_the_beats(router):
    beating, num_failures = Beating(router), 0
    await router.until(lambda: len(router.beats) >= 1)

    def fails_once() -> Pulse:
        nonlocal num_failures
        num_failures += 1
        if num_failures == 1:
            raise KeyError("a bug")
        return beating.take_pulse()

    beating.client._take_pulse = fails_once
    await router.until(lambda: num_failures >= 3)
    assert not beating.task.done()
    await beating.stop()


async def test_a_worker_asks_again_later_each_time_and_beats_as_it_is_told() -> None:
    time = VirtualTime()
    router = ScriptedRouter(beat_interval_s=0.5, clock=time)
    world = World(
        dialer=ScriptedDialer(router), clock=time, sleep=time.sleep, chance=AlwaysLongest()
    )
    pulse = Pulse(load=EngineLoad(), draining=False, kv_transport="nixl")
    beating = asyncio.create_task(
        MembershipClient("127.0.0.1:9", MEMBER, lambda: pulse, world).run()
    )
    await time.advance(3.1)
    waits_s = [late - soon for soon, late in pairwise(router.asked_s)]
    assert waits_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])
    router.is_there = True
    await time.advance(2.0)
    assert router.num_beats == 1  # at once after it has joined
    await time.advance(5.0)
    assert router.num_beats == 11
    await cancel([beating])


async def test_a_worker_that_is_refused_for_long_is_told_and_again_when_it_is_taken_in() -> None:
    time, told = VirtualTime(), list[bool]()
    router = ScriptedRouter(beat_interval_s=0.5, clock=time)
    world = World(dialer=ScriptedDialer(router), clock=time, sleep=time.sleep)
    pulse = Pulse(load=EngineLoad(), draining=False, kv_transport="nixl")
    client = MembershipClient("127.0.0.1:9", MEMBER, lambda: pulse, world, on_refusal=told.append)
    beating = asyncio.create_task(client.run())
    await time.advance(2 * REFUSED_S)
    assert told == [], "a router that is away refuses nobody"
    router.is_there, router.refuses_with = True, PairingMismatch("other weights")
    await time.advance(REFUSED_S - 1)
    assert told == []
    await time.advance(1 + 2 * LAST_RETRY_S)
    assert told == [True]
    router.refuses_with = None
    await time.advance(2 * LAST_RETRY_S)
    assert told == [True, False]
    await cancel([beating])


class AlwaysLongest(Random):
    def random(self) -> float:
        return 1.0
