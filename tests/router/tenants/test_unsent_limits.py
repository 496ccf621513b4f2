"""What a store that is late, or lost, was not sent is told later; what it was sent, only once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from cluster.deadline import Sleep
from cluster.process.background import Background, nothing_needed
from router.store.patience import Patience
from router.tenants import shared_limits
from router.tenants.account import Account
from router.tenants.limits import LimitKind, Rate, TokenBudget
from router.tenants.shared_limits import SharedLimits
from tests.manual_clock import ManualClock
from tests.redis_server import RedisServer
from tests.router.store.stores import NAMES, new_store, running, until

HURRIED = Patience(call_s=0.1, stall_s=60, connect_s=60, first_retry_s=0.01, longest_retry_s=0.05)
"""Late soon, and never given up."""
TOKENS = TokenBudget("key/budget", 6000.0, 36_000.0)


def spent(redis: RedisServer) -> float:
    """As the store has it."""
    words = redis.do("GET", NAMES.of_all("limit", TOKENS.key)).split()
    return float(words[2]) if len(words) > 2 else 0.0


@asynccontextmanager
async def ten_sent(redis: RedisServer, limits: SharedLimits) -> AsyncIterator[None]:
    """To a store that stands still until the block ends."""
    redis.stall()
    try:
        first = asyncio.create_task(limits.take([(TOKENS, 10)]))
        await until(lambda: bool(limits._store._calls._under_way))
        yield
    finally:
        redis.go_on()
    assert await first is None


async def test_what_was_not_sent_to_a_store_that_is_late_is_told_afterwards(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_limits, "TELL_WITHIN_S", 0.05)
    store = new_store(redis_server.url, HURRIED)
    limits = SharedLimits(store, lambda: 1)
    async with running(store):
        async with ten_sent(redis_server, limits):
            takes = [limits.take([(TOKENS, 1000)]) for _ in range(4)]
            assert await asyncio.gather(*takes) == [None] * 4
            limits.settle([(TOKENS, -3960)])
            await limits.tell()
            assert limits.num_untold == 1, "it was not sent either"
        monkeypatch.undo()
        await until(lambda: store.is_there)
        await limits.tell()
        await until(lambda: spent(redis_server) == 10 + 40)


async def test_what_was_sent_before_the_connection_broke_is_not_told_again(
    redis_server: RedisServer,
) -> None:
    store = new_store(redis_server.url, replace(HURRIED, call_s=60, stall_s=0.2))
    limits = SharedLimits(store, lambda: 1)
    async with running(store):
        async with ten_sent(redis_server, limits):
            await until(lambda: not store.is_there)
        assert not limits.num_untold
        await until(lambda: spent(redis_server) == 10)


@pytest.mark.parametrize("is_let_in", [True, False])
async def test_what_a_late_store_says_of_a_take_is_set_right_when_it_comes(
    redis_server: RedisServer, is_let_in: bool
) -> None:
    """One was let in here and refused there, or the other way round."""
    here, there = new_store(redis_server.url, HURRIED), new_store(redis_server.url)
    limits, others = SharedLimits(here, lambda: 1), SharedLimits(there, lambda: 1)
    async with running(here, there):
        used_up = [(TOKENS, TOKENS.tokens)]
        if is_let_in:
            assert await others.take(used_up) is None
        else:
            assert await limits.take(used_up) is None
            others.settle([(TOKENS, -TOKENS.tokens)])
            await others.tell()
        redis_server.stall()
        shortage = await limits.take([(TOKENS, 100)])
        assert (shortage is None) == is_let_in
        redis_server.go_on()
        await until(lambda: bool(limits.num_untold))
        await limits.tell()
        assert spent(redis_server) == (TOKENS.tokens + 100 if is_let_in else 0)


@pytest.mark.parametrize("prompt_tokens", [0, 3])
async def test_who_leaves_while_the_store_is_asked_pays_what_is_spent_by_then(
    redis_server: RedisServer, prompt_tokens: int
) -> None:
    """Free of cost, it could have its prompts read again and again."""
    store = new_store(redis_server.url)
    limits = SharedLimits(store, lambda: 1)
    spent_then = [(TOKENS, prompt_tokens)]
    async with running(store):
        redis_server.stall()
        asking = [asyncio.create_task(limits.take([(TOKENS, n)], spent_then)) for n in (10, 100)]
        await until(lambda: bool(store._calls._under_way))
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        redis_server.go_on()
        await until(lambda: spent(redis_server) == 110)
        await until(lambda: not store._calls._under_way)
        await limits.tell()
        assert spent(redis_server) == 2 * prompt_tokens


async def test_who_leaves_before_the_store_is_asked_pays_as_well(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    limits = SharedLimits(store, lambda: 1)
    async with running(store):
        async with ten_sent(redis_server, limits):
            asking = asyncio.create_task(limits.take([(TOKENS, 100)], [(TOKENS, 3)]))
            await until(lambda: bool(store._calls._waiting))
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await limits.tell()
        assert spent(redis_server) == 13


async def test_a_prompt_that_was_counted_is_paid_and_an_answer_that_never_began_is_not(
    redis_server: RedisServer,
) -> None:
    store = new_store(redis_server.url)
    left: list[None] = []
    limits = SharedLimits(store, lambda: 1, on_left=lambda: left.append(None))
    account = Account([TOKENS, Rate("key/requests", LimitKind.REQUESTS, 60.0)], limits)
    async with running(store):
        redis_server.stall()
        asking = [asyncio.create_task(each) for each in (account.enter(), account.reserve(30, 100))]
        await until(lambda: bool(store._calls._under_way))
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        redis_server.go_on()
        await until(lambda: spent(redis_server) == 130)
        await until(lambda: not store._calls._under_way)
        await limits.tell()
        assert spent(redis_server) == 30
        (_, _), (_, requests) = account.left()
        assert requests.amount < 10, "one has come"
        assert len(left) == 2


async def test_who_would_have_been_refused_pays_nothing_for_leaving(
    redis_server: RedisServer,
) -> None:
    store = new_store(redis_server.url)
    limits = SharedLimits(store, lambda: 1)
    async with running(store):
        assert await limits.take([(TOKENS, TOKENS.tokens)]) is None
        redis_server.stall()
        asking = asyncio.create_task(limits.take([(TOKENS, 100)], [(TOKENS, 3)]))
        await until(lambda: bool(store._calls._under_way))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert limits.num_untold == 1
        redis_server.go_on()
        await until(lambda: not limits.num_untold)
        assert spent(redis_server) == TOKENS.tokens


async def test_what_the_store_refuses_to_count_is_forgotten_as_a_rate_is_paid(
    redis_server: RedisServer,
) -> None:
    """Else whoever used its part for an hour would be refused for most of another."""
    clock = ManualClock()
    store = new_store(redis_server.url)
    limits = SharedLimits(store, lambda: 1, clock=clock, sleep=_of_a_minute(clock))
    rate = Rate("key/output-tokens", LimitKind.OUTPUT, 60.0)
    background = Background(nothing_needed)
    async with running(store):
        redis_server.do("ACL", "SETUSER", "default", "-evalsha")
        assert await limits.take([(rate, 60)]) is None
        assert limits.num_untold == 1
        background.keep("limits", limits.keep_told)
        await until(lambda: not limits.num_untold)
        redis_server.do("ACL", "SETUSER", "default", "+evalsha")
        assert await limits.take([(rate, 60)]) is None
        await background.close()


def _of_a_minute(clock: ManualClock) -> Sleep:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)
        clock.advance(60.0)

    return sleep
