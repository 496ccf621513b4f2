"""What the store refuses of one topic costs that topic alone, and is said in the store's words."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from router.control.plane import FleetPlane
from router.fairness.served_tokens import ServedTokens
from router.store.topics import StoreTopic
from router.telemetry.store_metrics import watch_store
from router.tenants.limits import LimitKind, Rate
from router.tenants.shared_limits import SharedLimits
from tests.redis_server import RedisServer
from tests.router.sharing.circles import circle_of, routers, store_of, worker_of
from tests.router.store.stores import NAMES, new_store, running, until

TEXT = "of no use to routers"


def _num_refused(registry: CollectorRegistry, topic: StoreTopic) -> float:
    name = "splitserve_router_store_refusals_total"
    return registry.get_sample_value(name, {"topic": topic}) or 0.0


def _watched(plane: FleetPlane) -> CollectorRegistry:
    registry = CollectorRegistry()
    watch_store(store_of(plane), registry)
    return registry


@pytest.mark.parametrize(
    "fault", [("SET", NAMES.of_fleet("predictions"), TEXT), ("ACL", "SETUSER", "default", "-xread")]
)
async def test_a_topic_that_is_refused_is_said_once_and_the_others_go_on(
    redis_server: RedisServer, fault: tuple[str, ...]
) -> None:
    async with routers(redis_server) as planes:
        first, *others = planes
        registry = _watched(first)
        with capture_logs() as lines:
            redis_server.do("DEL", NAMES.of_fleet("predictions"))
            redis_server.do(*fault)
            await until(lambda: _num_refused(registry, StoreTopic.PREDICTIONS) > 3)
            worker_of(first).assign("r1", num_tokens=100, prefill_tokens=60)
            await until(lambda: all(worker_of(p).elsewhere.num_requests == 1 for p in others))
        assert all(store_of(plane).is_there for plane in planes)
        assert _num_refused(registry, StoreTopic.ROUTERS) == 0
        told = [line for line in lines if line.get("topic") == StoreTopic.PREDICTIONS]
        assert len(told) == len(planes)
        words = "WRONGTYPE" if TEXT in fault else "xread"
        assert {(words in line["cause"], line["keys"]) for line in told} == {
            (True, NAMES.of_fleet("predictions"))
        }


async def test_routers_that_cannot_hear_each_other_still_count_shares_together(
    redis_server: RedisServer,
) -> None:
    async with routers(redis_server) as planes:
        redis_server.do("DEL", NAMES.of_fleet("routers"))
        registry = _watched(planes[0])
        redis_server.do("SET", NAMES.of_fleet("routers"), TEXT)
        await until(lambda: _num_refused(registry, StoreTopic.ROUTERS) > 3)
        served = [circle_of(plane).served.of_class(1) for plane in planes]
        for counters in served:
            counters.lift("acme", 0.0)
        for counters in served:
            counters.add("acme", 100.0)
        await until(lambda: [each.of("acme") for each in served] == [300.0] * 3)
        assert [circle_of(plane).num_alive for plane in planes] == [3, 3, 3]
        redis_server.do("DEL", NAMES.of_fleet("routers"))
        worker_of(planes[0]).assign("r1", num_tokens=100, prefill_tokens=60)
        await until(lambda: worker_of(planes[1]).elsewhere.num_requests == 1)


async def test_limits_that_the_store_may_not_count_are_counted_here(
    redis_server: RedisServer,
) -> None:
    store = new_store(redis_server.url)
    limits = SharedLimits(store, lambda: 3)
    few = Rate("few", LimitKind.OUTPUT, 60.0)
    async with running(store):
        redis_server.do("ACL", "SETUSER", "default", "-evalsha")
        with capture_logs() as lines:
            taken = [await limits.take([(few, 1)]) for _ in range(61)]
        assert store.is_there
        assert 20 <= sum(shortage is None for shortage in taken) <= 21
        assert [(line["topic"], line["keys"]) for line in lines] == [
            (StoreTopic.LIMITS, NAMES.of_all("limit", "few"))
        ]


async def test_what_was_refused_of_shares_is_in_the_store_once_it_is_mended(
    redis_server: RedisServer,
) -> None:
    key = NAMES.of_fleet("served", "1")
    async with routers(redis_server) as planes:
        first, second, _ = (circle_of(plane).served for plane in planes)
        registry = _watched(planes[0])
        redis_server.do("SET", key, TEXT)
        for served in (first, second):
            served.of_class(1).lift("acme", 1000.0)
            served.of_class(1).add("acme", 10.0)
        await until(lambda: _num_refused(registry, StoreTopic.SHARES) > 3)
        assert first.of_class(1).of("acme") == 1010.0, "and nothing is free meanwhile"
        redis_server.do("DEL", key)
        first.of_class(1).add("acme", 5.0)
        await until(lambda: _is_counted(first) and _is_counted(second))


def _is_counted(served: ServedTokens) -> bool:
    return served.of_class(1).of("acme") >= 1015.0
