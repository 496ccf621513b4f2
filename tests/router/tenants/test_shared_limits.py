"""Several routers, one limit: it holds over all of them, and nobody is refused for the store."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from cluster.process.background import Background, nothing_needed
from router.store.patience import Patience
from router.store.shared_store import SharedStore
from router.store.topics import StoreTopic
from router.tenants.limit_store import MemoryLimits
from router.tenants.limits import Limit, LimitKind, Rate, TokenBudget
from router.tenants.shared_limits import MAX_ALONE, SharedLimits
from router.tenants.unsettled import MAX_TOGETHER, Unsettled
from tests.redis_server import RedisServer
from tests.router.store.relay import Relay
from tests.router.store.stores import NAMES, PATIENT, STRICT, new_store, running, until

NUM_ROUTERS = 3
SLOW = Rate("key/output-tokens", LimitKind.OUTPUT, 60.0)
"""Sixty at once, then one a second: in a test hardly any."""
FEW = TokenBudget("budget", 60, 36_000)
"""However long a test takes."""
SLACK = 2 * NUM_ROUTERS
"""Calls that were under way when the store went, and what others had not heard of then."""


class Routers:
    """As far as limits go."""

    def __init__(self, stores: list[SharedStore]) -> None:
        self.stores = stores
        self.limits = [SharedLimits(store, lambda: len(stores)) for store in stores]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        background = Background(nothing_needed)
        async with running(*self.stores):
            for limits in self.limits:
                background.keep("limits", limits.keep_told)
            yield
            await background.close()

    async def use_up(self, limit: Limit, at_most: int = 1000) -> int:
        """Units that all of them let in, in turns, until each refuses."""
        num_taken, at = 0, 0
        refusing: set[SharedLimits] = set()
        while len(refusing) < len(self.limits) and num_taken < at_most:
            limits = self.limits[at % len(self.limits)]
            at += 1
            if await limits.take([(limit, 1)]) is None:
                num_taken += 1
            else:
                refusing.add(limits)
        return num_taken

    def is_there(self) -> bool:
        return all(store.is_there for store in self.stores)


def routers(urls: list[str], patience: Patience = PATIENT) -> Routers:
    return Routers([new_store(url, patience) for url in urls])


def of_kind(chance: random.Random) -> Limit:
    kind = chance.choice(("requests", "tokens", "budget"))
    if kind == "budget":
        return TokenBudget("budget", 60.0, 36_000.0)
    per_minute = 0.05 if kind == "requests" else 20.0 / 3600
    return Rate(kind, LimitKind.REQUESTS if kind == "requests" else LimitKind.INPUT, per_minute)


async def test_the_store_counts_as_a_router_alone_does(redis_server: RedisServer) -> None:
    chance = random.Random(7)
    alone = MemoryLimits(time.monotonic)
    fleet = routers([redis_server.url])
    (shared,) = fleet.limits
    async with fleet.running():
        for _ in range(400):
            limits = {limit.key: limit for limit in (of_kind(chance), of_kind(chance))}
            charges = [(limit, chance.choice((1, 1, 2, 30))) for limit in limits.values()]
            if chance.random() < 0.5:
                back = [(limit, -amount) for limit, amount in charges]
                alone.settle(back)
                shared.settle(back)
                await shared.tell()
            expected, found = await alone.take(charges), await shared.take(charges)
            assert (expected is None) == (found is None)
            if expected is not None and found is not None:
                assert found.limit == expected.limit
                assert found.wait_s == pytest.approx(expected.wait_s, abs=30.0)
            for limit, _ in charges:
                assert shared.left(limit).amount == pytest.approx(alone.left(limit).amount, abs=0.1)


async def test_of_several_limits_all_are_taken_or_none(redis_server: RedisServer) -> None:
    fleet = routers([redis_server.url])
    (limits,) = fleet.limits
    few = Rate("few", LimitKind.INPUT, 2.0)
    async with fleet.running():
        shortage = None
        while shortage is None:
            shortage = await limits.take([(SLOW, 1), (few, 1)])
        assert shortage.limit == few
        assert limits.left(SLOW).amount == pytest.approx(58, abs=1)


async def test_three_routers_let_in_a_rate_within_two_percent(redis_server: RedisServer) -> None:
    rate = Rate("key/input-tokens", LimitKind.INPUT, 600_000.0)  # 10 000 a second
    fleet = routers([redis_server.url] * NUM_ROUTERS)
    used = 0

    async def use(limits: SharedLimits, until_s: float) -> None:
        """Reserves twice what it needs, and gives the half back."""
        nonlocal used
        while time.monotonic() < until_s:
            if await limits.take([(rate, 50)]) is None:
                limits.settle([(rate, -25)])
                used += 25

    async with fleet.running():
        earliest_s = time.monotonic()
        assert await fleet.limits[0].take([(rate, rate.burst)]) is None
        latest_s = time.monotonic()
        await asyncio.gather(*(use(limits, latest_s + 1.0) for limits in fleet.limits))
        for limits in fleet.limits:
            await limits.tell()
        least_s = time.monotonic() - latest_s
        await fleet.limits[0].take([(rate, 1)])
        most_s = time.monotonic() - earliest_s
        unused = fleet.limits[0].left(rate).amount
    assert 0.98 * 10_000 * least_s <= used + unused <= 1.02 * 10_000 * most_s


@pytest.mark.parametrize("limit", [SLOW, TokenBudget("budget", 60.0, 3000.0)])
async def test_a_store_whose_clock_is_stepped_back_refuses_nobody_for_it(
    redis_server: RedisServer, limit: Limit
) -> None:
    store = new_store(redis_server.url)
    limits = SharedLimits(store, lambda: 1)
    key = NAMES.of_all("limit", limit.key)
    async with running(store):
        assert await limits.take([(limit, 60)]) is None
        _, due, tokens, written = redis_server.do("GET", key).decode().split()
        hour_on = f"{float(due) + 3600:.6f} {tokens} {float(written) + 3600:.6f}"
        redis_server.do("SET", key, hour_on)
        for _ in range(2):
            shortage = await limits.take([(limit, 60)])
            assert shortage is not None and shortage.wait_s <= 3000, "and not an hour more"
        assert float(redis_server.do("GET", key).split()[3]) < float(written) + 1800
        limits.settle([(limit, -60)])
        await limits.tell()
        assert await limits.take([(limit, 1)]) is None


async def test_a_request_given_back_elsewhere_may_be_taken_here(redis_server: RedisServer) -> None:
    fleet = routers([redis_server.url] * 2)
    first, second = fleet.limits
    async with fleet.running():
        assert await first.take([(SLOW, 60)]) is None
        assert await second.take([(SLOW, 30)]) is not None
        first.settle([(SLOW, -40)])
        while await second.take([(SLOW, 30)]) is not None:
            await asyncio.sleep(0)


Fault = Callable[[RedisServer], Awaitable[None]]


async def killed(redis: RedisServer) -> None:
    redis.kill()


async def stalled(redis: RedisServer) -> None:
    redis.stall()


MEND = {killed: RedisServer.start, stalled: RedisServer.go_on}


@pytest.mark.parametrize("fault", MEND, ids=lambda fault: fault.__name__)
async def test_without_the_store_each_lets_in_its_part_and_with_it_all_count_together(
    redis_server: RedisServer, fault: Fault
) -> None:
    patience = STRICT if fault is stalled else PATIENT
    fleet = routers([redis_server.url] * NUM_ROUTERS, patience)
    async with fleet.running():
        assert await fleet.use_up(FEW, at_most=30) == 30
        await fault(redis_server)
        without = await fleet.use_up(FEW)
        assert 30 - SLACK <= without <= 30 + SLACK
        MEND[fault](redis_server)
        await until(fleet.is_there)
        await until(lambda: not any(limits.num_untold for limits in fleet.limits))
        assert await fleet.use_up(FEW) <= SLACK
        assert all(limits.left(FEW).amount < SLACK for limits in fleet.limits)


async def test_a_store_that_is_emptied_begins_with_what_routers_know(
    redis_server: RedisServer,
) -> None:
    fleet = routers([redis_server.url] * NUM_ROUTERS)
    async with fleet.running():
        assert await fleet.use_up(FEW, at_most=50) == 50
        redis_server.do("FLUSHALL")
        assert await fleet.use_up(FEW) <= 10 + SLACK


async def test_a_router_that_is_cut_off_has_its_part_and_comes_back(
    redis_server: RedisServer,
) -> None:
    async with Relay(redis_server) as wire:
        fleet = routers([redis_server.url, redis_server.url, wire.url])
        cut_off = fleet.limits[2]
        async with fleet.running():
            assert await fleet.use_up(FEW, at_most=30) == 30
            await wire.cut()
            await until(lambda: not fleet.stores[2].is_there)
            num_taken = 0
            while await cut_off.take([(FEW, 1)]) is None:
                num_taken += 1
            assert 9 <= num_taken <= 10 + SLACK
            assert cut_off.left(FEW).amount < 1
            await wire.mend()
            await until(fleet.is_there)
            await until(lambda: not cut_off.num_untold)
            assert await fleet.use_up(FEW) <= 20 + SLACK
    assert num_taken


async def test_a_limit_that_the_store_refuses_is_kept_whatever_others_are_counted(
    redis_server: RedisServer,
) -> None:
    fleet = routers([redis_server.url])
    (limits,) = fleet.limits
    redis_server.do("LPUSH", NAMES.of_all("limit", FEW.key), "of another type")
    async with fleet.running():
        num_let_in = 0
        for _ in range(3 * FEW.tokens):
            num_let_in += await limits.take([(FEW, 1)]) is None
            assert await limits.take([(TokenBudget("other", 1e6, 36_000), 1)]) is None
        assert num_let_in == FEW.tokens
        assert not limits.left(FEW).amount
        redis_server.do("DEL", NAMES.of_all("limit", FEW.key))
        await until(lambda: not limits.num_untold)
        assert await limits.take([(FEW, 1)]) is not None, "the store has heard what was let in"


async def test_a_limit_that_the_store_refuses_keeps_no_other_from_being_told(
    redis_server: RedisServer,
) -> None:
    """They are told together: with one of another type the store heard of none."""
    fleet = routers([redis_server.url])
    (limits,) = fleet.limits
    many = [TokenBudget(f"key-{number}/budget", 1e6, 36_000) for number in range(100)]
    refused = many[50]
    redis_server.do("LPUSH", NAMES.of_all("limit", refused.key), "of another type")
    async with fleet.running():
        await until(fleet.is_there)
        limits.settle([(limit, 7) for limit in many])
        await until(lambda: limits.num_untold == 1)
        for limit in many:
            assert limit is refused or _spent(redis_server, limit) == 7
        limits.settle([(limit, 1) for limit in many])
        await until(lambda: limits.num_untold == 1 and _spent(redis_server, many[-1]) == 8)
        redis_server.do("DEL", NAMES.of_all("limit", refused.key))
        await until(lambda: _spent(redis_server, refused) == 8)


async def test_where_the_store_refuses_all_limits_it_is_asked_for_a_few_at_a_time(
    redis_server: RedisServer,
) -> None:
    store = new_store(redis_server.url)
    limits, num_refused = SharedLimits(store, lambda: 1), 0

    def count(topic: StoreTopic) -> None:
        nonlocal num_refused
        num_refused += 1

    store.refusals.watch(count)
    async with running(store):
        limits.settle([(TokenBudget(f"{number}", 1e6, 36_000), 7) for number in range(1000)])
        redis_server.do("ACL", "SETUSER", "default", "-evalsha")
        assert not await limits.tell()
        assert limits.num_untold == 1000 and num_refused <= MAX_ALONE + 1000 / MAX_TOGETHER
        redis_server.do("ACL", "SETUSER", "default", "+evalsha")
        assert await limits.tell()
        assert not limits.num_untold


def _spent(redis: RedisServer, limit: Limit) -> float:
    """As the store has it."""
    words = redis.do("GET", NAMES.of_all("limit", limit.key)).split()
    return float(words[2]) if len(words) > 2 else 0.0


async def test_a_take_that_takes_nothing_asks_nobody(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    limits = SharedLimits(store, lambda: 1)
    async with running(store):
        for _ in range(61):
            await limits.take([(SLOW, 1)])
        redis_server.stall()
        assert await limits.take([(SLOW, 0)]) is not None
        redis_server.go_on()


def test_what_a_rate_let_in_is_forgotten_as_it_is_paid() -> None:
    unsettled = Unsettled()
    budget = TokenBudget("budget", 100.0, 3600.0)
    unsettled.add([(SLOW, 30), (budget, 30)])
    unsettled.fade(15.0, num_routers=3)
    assert unsettled.pop() == [(SLOW, 25.0), (budget, 30.0)]
    assert not len(unsettled)
    unsettled.add([(SLOW, 4)])
    unsettled.fade(60.0, num_routers=3)
    assert unsettled.pop() == []
