"""A worker of a fleet with several routers tells each of them, and depends on none."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from cluster.dial.names import addresses_of
from cluster.errors import ConfigError, PairingMismatch, WorkerLost
from cluster.identity import Role
from cluster.membership.client import LAST_RETRY_S, REFUSED_S
from cluster.membership.reach import RouterPlace
from cluster.process.background import Loss
from cluster.rpc import open_channel
from cluster.world import World
from protos import membership_pb2
from tests.scripted_dialer import ScriptedDialer, ScriptedRouter
from tests.virtual_time import VirtualTime, settle
from tests.worker.test_worker_process import SERVING, health
from tests.worker.worker_bench import Running, noting_router, options_for, running_worker
from worker.router_names import LOOK_EVERY_S

NAMES = ("one:1", "two:2", "three:3")


@asynccontextmanager
async def worker_of_three(
    *, away: tuple[int, ...] = (), refusing: tuple[int, ...] = ()
) -> AsyncIterator[tuple[VirtualTime, list[ScriptedRouter], str]]:
    """By their numbers; the others are there and take it."""
    async with running_with_three(away, refusing) as (time, routers, worker):
        yield time, routers, await worker.ready()


@asynccontextmanager
async def running_with_three(
    away: tuple[int, ...], refusing: tuple[int, ...]
) -> AsyncIterator[tuple[VirtualTime, list[ScriptedRouter], Running]]:
    time = VirtualTime()
    routers = [ScriptedRouter(beat_interval_s=0.5, clock=time) for _ in NAMES]
    for number, router in enumerate(routers):
        router.is_there = number not in away
        router.refuses_with = PairingMismatch("other weights") if number in refusing else None
    dialer = ScriptedDialer(routers=dict(zip(NAMES, routers, strict=True)))
    world = World(dialer=dialer, clock=time, sleep=time.sleep)
    options = options_for(Role.DECODE, ",".join(NAMES))
    async with running_worker(options, world=world) as worker:
        yield time, routers, worker


async def test_it_joins_beats_and_leaves_at_each_of_them() -> None:
    async with noting_router() as one, noting_router() as two:
        options = options_for(Role.DECODE, f"{one.address},{two.address}")
        async with running_worker(options) as worker:
            address = await worker.ready()
            for router in (one, two):
                await router.until(lambda router=router: router.beats)
                (member,) = router.joins
                assert member.address == address
            os.kill(os.getpid(), signal.SIGTERM)
            assert await worker.ended() == 0
            assert [len(router.leaves) for router in (one, two)] == [1, 1]


async def test_one_that_is_away_is_asked_again_and_the_others_hear_of_it_as_before() -> None:
    async with worker_of_three(away=(1,)) as (time, routers, _):
        await time.advance(10.0)
        assert [len(router.members) for router in routers] == [1, 0, 1]
        assert routers[0].num_beats >= 19 and routers[2].num_beats >= 19
        routers[1].is_there = True
        await time.advance(2 * LAST_RETRY_S)
        assert len(routers[1].members) == 1


async def test_one_that_stands_still_takes_no_beat_from_the_others() -> None:
    async with worker_of_three() as (time, routers, _):
        await time.advance(1.0)
        routers[1].sleep = time.sleep
        before = [router.num_beats for router in routers]
        await time.advance(10.0)
        num_beats = [router.num_beats - n for router, n in zip(routers, before, strict=True)]
        assert num_beats[0] >= 19 and num_beats[2] >= 19
        assert num_beats[1] <= 1
        routers[1].sleep = None
        await time.advance(2 * LAST_RETRY_S)
        assert routers[1].num_beats > before[1] + 1


async def test_one_that_died_and_came_back_without_memory_is_joined_again() -> None:
    async with worker_of_three() as (time, routers, _):
        await time.advance(1.0)
        routers[2].is_there = False
        await time.advance(5.0)
        routers[2].is_there, routers[2].knows_nobody = True, True
        await time.advance(2 * LAST_RETRY_S)
        assert [len(router.members) for router in routers] == [1, 1, 2]
        assert {member.incarnation for member in routers[2].members} == {
            routers[0].members[0].incarnation
        }


async def test_each_is_told_at_once_that_it_drains() -> None:
    async with worker_of_three() as (time, routers, _):
        await time.advance(1.0)
        assert not any(any(router.draining) for router in routers)
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            await settle()  # by no beat that was due: time stands
            if all(router.draining[-1] for router in routers):
                break
        assert [router.draining[-1] for router in routers] == [True] * 3


async def test_what_one_of_them_holds_it_for_all_hear_at_once_and_one_that_forgot_it() -> None:
    async with worker_of_three() as (time, routers, _):
        await time.advance(1.0)
        routers[0].hold = membership_pb2.WorkerHold(kind="cordon", number=4)
        await time.advance(0.5)
        for router in routers:
            assert router.told_holds[-1] == routers[0].hold
        routers[0].hold = membership_pb2.WorkerHold()  # it has forgotten
        routers[0].knows_nobody = True
        await time.advance(2 * LAST_RETRY_S)
        assert len(routers[0].members) == 2
        assert routers[0].told_holds[-1] == membership_pb2.WorkerHold(kind="cordon", number=4)


async def test_only_one_that_was_asked_to_end_says_that_it_is_not_expected_back() -> None:
    async with noting_router() as router:
        async with running_worker(options_for(Role.DECODE, router.address)) as worker:
            await worker.ready()
            await router.until(lambda: router.beats)
            os.kill(os.getpid(), signal.SIGTERM)
            assert await worker.ended() == 0
        async with running_worker(options_for(Role.DECODE, router.address)) as worker:
            await worker.ready()
            await router.until(lambda: len(router.joins) == 2)
            worker.process._on_loss(Loss("engine", WorkerLost("it was killed")))
            assert await worker.ended() == 1
        assert [leave.was_asked for leave in router.leaves] == [True, False]


async def test_it_is_ready_as_long_as_one_of_them_takes_it() -> None:
    async with (
        worker_of_three(refusing=(0, 1)) as (time, routers, address),
        open_channel(address) as channel,
    ):
        await time.advance(REFUSED_S + 2 * LAST_RETRY_S)
        assert await health(channel, Role.DECODE) == SERVING
        assert [len(router.members) for router in routers] == [0, 0, 1]


async def test_it_is_not_ready_when_all_of_them_refuse_it_until_one_does_not() -> None:
    async with (
        worker_of_three(refusing=(0, 1, 2)) as (time, routers, address),
        open_channel(address) as channel,
    ):
        await time.advance(REFUSED_S + 2 * LAST_RETRY_S)
        assert await health(channel, Role.DECODE) != SERVING
        routers[1].refuses_with = None
        await time.advance(2 * LAST_RETRY_S)
        assert await health(channel, Role.DECODE) == SERVING


async def test_probes_find_it_ready_when_none_refuses_it_and_later_on_one_may() -> None:
    """Those before it in a rolling update leave when it is ready: a router may need them."""
    async with running_with_three(away=(1,), refusing=(0,)) as (time, routers, worker):
        await worker.ready()
        ready = worker.process.why_not_ready
        await time.advance(3 * REFUSED_S)
        assert len(routers[2].members) == 1
        assert ready() == "a router has not taken this worker yet"
        routers[0].refuses_with = None
        await time.advance(2 * LAST_RETRY_S)
        assert ready() is None
        routers[0].knows_nobody, routers[0].refuses_with = True, PairingMismatch("a newer model")
        await time.advance(3 * REFUSED_S)
        assert ready() is None


def test_routers_are_named_with_commas_and_each_once() -> None:
    places = RouterPlace.parse_all("a:1, dns+b:2")
    assert [str(place) for place in places] == ["a:1", "dns+b:2"]
    assert [place.is_each_address for place in places] == [False, True]
    for wrong in ("dns+:1", "a:1,a:1", "a:1,", "a:1,b", ","):
        with pytest.raises(ConfigError) as raised:
            RouterPlace.parse_all(wrong)
        assert raised.value.param == "router"


class NameServer:
    """Knows one name, or does not answer."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: frozenset[str] | None = frozenset(addresses)

    async def __call__(self, name: str) -> frozenset[str]:
        if self.addresses is None or name != "routers":
            raise OSError("no such name")
        return self.addresses


@asynccontextmanager
async def worker_by_name(
    names: NameServer,
) -> AsyncIterator[tuple[VirtualTime, list[ScriptedRouter]]]:
    """At addresses 10.0.0.0 to 10.0.0.2 routers listen."""
    time = VirtualTime()
    routers = [ScriptedRouter(beat_interval_s=0.5, clock=time) for _ in NAMES]
    for router in routers:
        router.is_there = True
    dialer = ScriptedDialer(routers={f"10.0.0.{n}:7": it for n, it in enumerate(routers)})
    world = World(dialer=dialer, clock=time, sleep=time.sleep, lookup=names)
    async with running_worker(options_for(Role.DECODE, "dns+routers:7"), world=world) as worker:
        await worker.ready()
        await time.advance(1.0)
        yield time, routers


async def test_a_router_at_each_address_of_a_name_is_joined_also_one_that_comes_later() -> None:
    names = NameServer("10.0.0.0", "10.0.0.1")
    async with worker_by_name(names) as (time, routers):
        assert [len(router.members) for router in routers] == [1, 1, 0]
        names.addresses = frozenset(["10.0.0.0", "10.0.0.1", "10.0.0.2"])
        await time.advance(2 * LOOK_EVERY_S)
        assert [len(router.members) for router in routers] == [1, 1, 1]


async def test_a_router_that_left_its_name_is_told_of_its_worker_as_long_as_it_answers() -> None:
    names = NameServer("10.0.0.0", "10.0.0.1")
    async with worker_by_name(names) as (time, routers):
        names.addresses = frozenset(["10.0.0.1"])
        before = routers[0].num_beats
        await time.advance(4 * LOOK_EVERY_S)
        assert routers[0].num_beats >= before + 39  # it drains, and needs its workers
        routers[0].is_there = False
        await time.advance(2 * LOOK_EVERY_S)
        routers[0].is_there, before = True, routers[0].num_beats
        await time.advance(4 * LOOK_EVERY_S)
        assert routers[0].num_beats == before


async def test_a_name_that_nobody_knows_for_a_while_takes_no_router_away() -> None:
    names = NameServer("10.0.0.0")
    async with worker_by_name(names) as (time, routers):
        names.addresses, before = None, routers[0].num_beats
        await time.advance(4 * LOOK_EVERY_S)
        assert routers[0].num_beats >= before + 39
        names.addresses = frozenset(["10.0.0.0", "10.0.0.1"])
        await time.advance(2 * LOOK_EVERY_S)
        assert len(routers[1].members) == 1


async def test_all_addresses_of_a_real_name_are_found() -> None:
    assert await addresses_of("localhost") == {"127.0.0.1"}


async def test_a_worker_that_no_router_ever_took_is_not_ready_for_probes(free_port: int) -> None:
    names = NameServer()
    names.addresses = None
    time = VirtualTime()
    router = ScriptedRouter(beat_interval_s=0.5, clock=time)
    router.is_there = True
    dialer = ScriptedDialer(routers={"10.0.0.0:7": router})
    world = World(dialer=dialer, clock=time, sleep=time.sleep, lookup=names)
    options = options_for(Role.DECODE, "dns+routers:7", metrics_port=free_port)
    async with running_worker(options, world=world) as worker, httpx.AsyncClient() as client:
        await worker.ready()
        await time.advance(1.0)
        page = f"http://127.0.0.1:{free_port}/ready"
        answer = await client.get(page, timeout=30)
        assert answer.text == "no router has taken this worker yet\n"
        names.addresses = frozenset(["10.0.0.0"])
        await time.advance(2 * LOOK_EVERY_S)
        assert (await client.get(page, timeout=30)).status_code == 200
        router.is_there = False
        await time.advance(2 * LOOK_EVERY_S)
        assert (await client.get(page, timeout=30)).status_code == 200  # it restarts
