"""A worker is ready once its routers say that others of its pairing are there; then for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cluster.identity import Role
from cluster.membership.client import LAST_RETRY_S, REFUSED_S
from cluster.world import World
from tests.scripted_dialer import ScriptedDialer, ScriptedRouter
from tests.virtual_time import VirtualTime
from tests.worker.worker_bench import options_for, running_worker

NAMES = ("one:1", "two:2")
LATER = "none of 2 decode workers has this pairing"
WAITS = f"it waits for others of its pairing: {LATER}"
BEAT_S = 0.5


@asynccontextmanager
async def settling_worker() -> AsyncIterator[
    tuple[VirtualTime, list[ScriptedRouter], Callable[[], str | None]]
]:
    """Of two routers, of which the second says that it is to be ready later."""
    time = VirtualTime()
    routers = [ScriptedRouter(beat_interval_s=BEAT_S, clock=time) for _ in NAMES]
    for router in routers:
        router.is_there = True
    routers[1].settles_later = LATER
    dialer = ScriptedDialer(routers=dict(zip(NAMES, routers, strict=True)))
    world = World(dialer=dialer, clock=time, sleep=time.sleep)
    async with running_worker(options_for(Role.PREFILL, ",".join(NAMES)), world=world) as worker:
        await worker.ready()
        await time.advance(2 * BEAT_S)
        yield time, routers, worker.process.why_not_ready


async def test_it_takes_work_and_is_not_ready_until_no_router_wants_others_first() -> None:
    async with settling_worker() as (time, routers, why_not_ready):
        assert [len(router.members) for router in routers] == [1, 1]
        assert why_not_ready() == WAITS
        assert routers[0].settling[-1] and routers[1].settling[-1]
        routers[1].settles_later = ""
        await time.advance(3 * BEAT_S)
        assert why_not_ready() is None
        assert not routers[0].settling[-1] and not routers[1].settling[-1]


async def test_once_ready_it_stays_so_also_for_a_router_that_knows_nobody_any_more() -> None:
    async with settling_worker() as (time, routers, why_not_ready):
        routers[1].settles_later = ""
        await time.advance(3 * BEAT_S)
        for router in routers:
            router.settles_later, router.knows_nobody = LATER, True
        await time.advance(2 * LAST_RETRY_S)
        assert [len(router.members) for router in routers] == [2, 2]
        assert why_not_ready() is None and not routers[0].settling[-1]


async def test_a_router_that_is_lost_holds_nobody_back() -> None:
    async with settling_worker() as (time, routers, why_not_ready):
        assert why_not_ready() == WAITS
        routers[1].is_there = False
        await time.advance(REFUSED_S)
        assert why_not_ready() is None
