"""Routers that share a real Redis: what they tell each other, and what its faults cost them."""

from __future__ import annotations

import pytest

from cluster.membership.hold import HoldKind
from router.control.plane import FleetPlane
from tests.redis_server import RedisServer
from tests.router.sharing.circles import circle_of, routers, store_of, worker_of
from tests.router.store.stores import STRICT, until


def _loads_of(plane: FleetPlane) -> set[int]:
    """By all routers' own words, as this one has them."""
    return {state.load_digest for state in circle_of(plane).states()}


async def test_all_routers_know_what_each_has_given(redis_server: RedisServer) -> None:
    async with routers(redis_server) as planes:
        shares = [
            worker_of(plane).assign(f"r{number}", num_tokens=100, prefill_tokens=60)
            for number, plane in enumerate(planes)
        ]
        await until(lambda: all(worker_of(p).elsewhere.num_tokens == 200 for p in planes))
        assert {worker_of(plane).elsewhere.num_prompts for plane in planes} == {2}
        assert len({circle_of(plane).load_digest for plane in planes}) == 1
        await until(lambda: all(_loads_of(plane) == _loads_of(planes[0]) for plane in planes))
        told = circle_of(planes[0]).states()
        assert [state.num_in_flight for state in told] == [1, 1, 1]
        assert [state.name for state in told[1:]] == circle_of(planes[0]).others
        for share in shares:
            share.release()
        await until(lambda: all(worker_of(p).elsewhere.num_requests == 0 for p in planes))
        assert {circle_of(plane).load_digest for plane in planes} == {0}


async def test_a_router_that_stops_is_gone_at_once_and_takes_what_it_had_given_along(
    redis_server: RedisServer,
) -> None:
    async with routers(redis_server) as [first, second, third]:
        worker_of(third).assign("r1", num_tokens=100, prefill_tokens=60)
        await until(lambda: worker_of(first).elsewhere.num_requests == 1)
        await third.close()
        await until(lambda: circle_of(first).num_alive == circle_of(second).num_alive == 2)
        assert worker_of(first).elsewhere.num_requests == 0


async def test_what_an_operator_tells_one_router_of_a_worker_that_tells_nobody_all_know(
    redis_server: RedisServer,
) -> None:
    """Its worker beats for none of them, as a server of another engine."""
    async with routers(redis_server) as planes:
        key = worker_of(planes[0]).key.worker_id
        planes[0].fleet.holds.order(key, HoldKind.DRAIN)
        await until(lambda: all(worker_of(p).hold.kind is HoldKind.DRAIN for p in planes))
        planes[1].fleet.holds.order(key, HoldKind.NONE)
        await until(lambda: not any(worker_of(p).hold.is_on for p in planes))
        assert {worker_of(plane).hold.number for plane in planes} == {2}


async def test_a_router_that_comes_later_learns_of_holds_from_the_others(
    redis_server: RedisServer,
) -> None:
    async with routers(redis_server, 2) as planes:
        planes[0].fleet.holds.order("vllm-10.0.0.1:8000", HoldKind.CORDON)
        await until(lambda: planes[1].fleet.holds.of("vllm-10.0.0.1:8000").is_on)
        await planes[0].close()
        async with routers(redis_server, 1) as [late]:
            await until(lambda: late.fleet.holds.of("vllm-10.0.0.1:8000").is_on)


async def test_what_a_tenant_was_served_by_one_router_counts_at_the_others(
    redis_server: RedisServer,
) -> None:
    async with routers(redis_server) as planes:
        served = [circle_of(plane).served.of_class(1) for plane in planes]
        for counters in served:
            counters.lift("acme", 0.0)
        for counters in served:
            counters.add("acme", 100.0)
        await until(lambda: [each.of("acme") for each in served] == [300.0] * 3)


@pytest.mark.parametrize("fault", ["killed", "stalled", "wiped"])
async def test_routers_lose_nothing_by_a_store_that_fails_and_find_each_other_again(
    redis_server: RedisServer, fault: str
) -> None:
    async with routers(redis_server, patience=STRICT) as planes:
        first, *others = planes
        stores = [store_of(plane) for plane in planes]
        if fault == "wiped":
            redis_server.do("FLUSHALL")
        else:
            redis_server.kill() if fault == "killed" else redis_server.stall()
            await until(lambda: not any(store.is_there for store in stores))
            assert [circle_of(plane).num_alive for plane in planes] == [3, 3, 3]
            redis_server.start() if fault == "killed" else redis_server.go_on()
        worker_of(first).assign("new", num_tokens=100, prefill_tokens=60)
        await until(lambda: all(worker_of(p).elsewhere.num_requests == 1 for p in others))
        assert [circle_of(plane).num_alive for plane in planes] == [3, 3, 3]
