"""Three routers, one fleet's worth of tokens: whoever asks where, shares follow the weights."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from router.fairness.counters import Counters, MemoryCounters
from router.fairness.served_tokens import ServedTokens
from router.fairness.shared_counters import SharedCounters
from router.fairness.shares import Shares
from router.store.shared_store import SharedStore
from tests.redis_server import RedisServer
from tests.router.store.relay import Relay
from tests.router.store.stores import NAMES, new_store, running, until

TICKS = 200
"""Of 50 ms: ten seconds."""
PLACES = 4
"""That come free at each router in a tick."""


class Routers:
    """Each serves whoever waits at it; nobody ever runs out of requests."""

    def __init__(self, counters: list[Counters], waiting: list[Mapping[str, float]]) -> None:
        self._waiting = waiting
        self._shares = [Shares(each) for each in counters]
        self._chance = random.Random(3)
        self.served: Counter[str] = Counter()
        for shares, tenants in zip(self._shares, waiting, strict=True):
            for tenant in tenants:
                shares.came(tenant)

    def tick(self) -> None:
        for shares, tenants in zip(self._shares, self._waiting, strict=True):
            for _ in range(PLACES):
                tenant = shares.next_of(tenants)
                shares.served(tenant)
                tokens = self._chance.randint(100, 500)
                shares.charge(tenant, tokens, tenants[tenant])
                self.served[tenant] += tokens

    def share_of(self, tenant: str) -> float:
        return self.served[tenant] / self.served.total()


class Told(ServedTokens):
    """Of a router whose ticks a test takes by hand."""

    def __init__(self, store: SharedStore) -> None:
        super().__init__(NAMES, 1, lambda: store.is_there)
        self._store = store

    async def tell(self) -> None:
        if commands := self.ask():
            await self.heard(await self._store.ask(*commands))


async def ten_seconds(
    routers: Routers, served: list[Told], at: Callable[[int], None] = lambda tick: None
) -> None:
    for tick in range(TICKS):
        at(tick)
        routers.tick()
        for each in served:
            await each.tell()


def of_routers(url: str) -> tuple[list[SharedStore], list[Told]]:
    stores = [new_store(url) for _ in range(3)]
    return stores, [Told(store) for store in stores]


CASES: dict[str, tuple[list[Mapping[str, float]], Mapping[str, float]]] = {
    "one of two asks at two of three": (
        [{"all": 1.0, "two": 1.0}, {"all": 1.0, "two": 1.0}, {"all": 1.0}],
        {"all": 1 / 2, "two": 1 / 2},
    ),
    "all ask everywhere": (
        [{"a": 1.0, "b": 2.0, "c": 5.0}] * 3,
        {"a": 1 / 8, "b": 2 / 8, "c": 5 / 8},
    ),
    "each pair meets at one": (
        [{"a": 1.0, "b": 1.0}, {"b": 1.0, "c": 2.0}, {"c": 2.0, "a": 1.0}],
        {"a": 1 / 4, "b": 1 / 4, "c": 2 / 4},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_over_ten_seconds_shares_are_within_five_percent_of_weights(
    redis_server: RedisServer, case: str
) -> None:
    waiting, expected = CASES[case]
    stores, served = of_routers(redis_server.url)
    async with running(*stores):
        routers = Routers([each.of_class(0) for each in served], waiting)
        await ten_seconds(routers, served)
    for tenant, share in expected.items():
        assert routers.share_of(tenant) == pytest.approx(share, rel=0.05)


async def test_routers_alone_would_not_come_near() -> None:
    waiting, expected = CASES["one of two asks at two of three"]
    routers = Routers([MemoryCounters() for _ in range(3)], waiting)
    await ten_seconds(routers, [])
    assert routers.share_of("all") > 1.2 * expected["all"]


async def test_shares_hold_though_the_store_is_emptied_twice(redis_server: RedisServer) -> None:
    waiting, expected = CASES["one of two asks at two of three"]
    stores, served = of_routers(redis_server.url)
    async with running(*stores):
        routers = Routers([each.of_class(0) for each in served], waiting)

        def empty(tick: int) -> None:
            if tick in (70, 140):
                redis_server.do("FLUSHALL")

        await ten_seconds(routers, served, empty)
    for tenant, share in expected.items():
        assert routers.share_of(tenant) == pytest.approx(share, rel=0.05)


async def test_what_is_served_without_the_store_is_told_when_it_is_back(
    redis_server: RedisServer,
) -> None:
    async with Relay(redis_server) as wire:
        here, there = new_store(wire.url), new_store(wire.url)
        served = [Told(here), Told(there)]
        async with running(here, there):
            for each in served:
                each.of_class(0).lift("acme", 100.0)
                await each.tell()
            await wire.cut()
            await until(lambda: not here.is_there and not there.is_there)
            for each, tokens in zip(served, (30.0, 5.0), strict=True):
                each.of_class(0).add("acme", tokens)
                await each.tell()
            assert [each.of_class(0).of("acme") for each in served] == [130.0, 105.0]
            await wire.mend()
            await until(lambda: here.is_there and there.is_there)
            for each in (*served, *served):
                await each.tell()
            assert [each.of_class(0).of("acme") for each in served] == [135.0, 135.0]


async def test_what_a_late_tick_did_not_send_is_told_at_the_next(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    served = Told(store)
    counters = served.of_class(0)
    async with running(store):
        counters.lift("acme", 100.0)
        counters.add("acme", 30.0)
        for may_be_done, told_tokens in ((False, 42.0), (True, 0.0)):
            served.ask()
            counters.add("acme", 12.0)
            counters.lift("new", 0.0)
            before = counters.of("acme"), counters.of("new")
            served.unheard(may_be_done=may_be_done)
            assert (counters.of("acme"), counters.of("new")) == before
            if not may_be_done:
                await served.tell()
                assert counters.of("acme") == 100.0 + told_tokens
        assert counters.of("acme") == 154.0


async def test_a_tenant_that_comes_elsewhere_has_no_claim_on_what_it_did_not_use(
    redis_server: RedisServer,
) -> None:
    here, there = new_store(redis_server.url), new_store(redis_server.url)
    first, second = Told(here), Told(there)
    async with running(here, there):
        second.of_class(0).lift("early", 0.0)
        first.of_class(0).lift("busy", 5000.0)
        await first.tell()
        await second.tell()
        second.of_class(0).lift("late", 0.0)
        assert second.of_class(0).of("late") == 5000.0


def test_what_is_added_counts_here_at_once_and_one_that_is_unknown_stays_so() -> None:
    counters = SharedCounters("key")
    counters.add("nobody", 5.0)
    assert counters.of("nobody") == 0.0 and counters.take_commands() == []
    counters.lift("acme", 10.0)
    counters.add("acme", 5.0)
    assert counters.of("acme") == 15.0
    assert counters.take_commands()[:2] == [
        ("ZADD", "key", "GT", 10.0, "acme"),
        ("ZINCRBY", "key", 5.0, "acme"),
    ]
    assert counters.of("acme") == 15.0
