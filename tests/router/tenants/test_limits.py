"""So much a minute, and no more; so much a period, and no more."""

from __future__ import annotations

import random

import pytest

from cluster.errors import BudgetSpent
from router.tenants.account import Account
from router.tenants.limit_store import MAX_STATES, MemoryLimits
from router.tenants.limits import LEAST_BURST, REQUEST_BURST_S, Limit, LimitKind, Rate, TokenBudget
from tests.manual_clock import ManualClock


class Meter:
    """One limit in a store of its own."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.clock = ManualClock()
        self._store = MemoryLimits(self.clock)

    async def lets_in(self, amount: float = 1.0) -> bool:
        return await self.wait_s(amount) == 0.0

    async def wait_s(self, amount: float = 1.0) -> float:
        shortage = await self._store.take([(self.limit, amount)])
        return 0.0 if shortage is None else shortage.wait_s

    def settle(self, amount: float) -> None:
        self._store.settle([(self.limit, amount)])

    @property
    def left(self) -> float:
        return self._store.left(self.limit).amount


def requests(per_minute: float) -> Rate:
    return Rate("key/requests", LimitKind.REQUESTS, per_minute)


def tokens(per_minute: float) -> Rate:
    return Rate("key/output", LimitKind.OUTPUT, per_minute)


@pytest.mark.parametrize("per_minute", [0.5, 6.0, 60.0, 6000.0])
async def test_over_ten_minutes_it_is_the_rate_whatever_the_pace(per_minute: float) -> None:
    meter, chance = Meter(requests(per_minute)), random.Random(1)
    num_let_in, end_s = 0, meter.clock() + 600.0
    while meter.clock() < end_s:
        meter.clock.advance(chance.expovariate(per_minute / 20.0))  # three times what is allowed
        num_let_in += await meter.lets_in()
    burst = max(LEAST_BURST, per_minute / 60.0 * REQUEST_BURST_S)
    assert per_minute * 10 * 0.98 - 1 <= num_let_in <= per_minute * 10 * 1.001 + burst + 1


@pytest.mark.parametrize(("per_minute", "burst"), [(60.0, REQUEST_BURST_S), (1.0, LEAST_BURST)])
async def test_what_was_not_asked_for_may_come_at_once_and_no_more(
    per_minute: float, burst: float
) -> None:
    meter = Meter(requests(per_minute))
    meter.clock.advance(3600.0)
    assert sum([await meter.lets_in() for _ in range(100)]) == burst


@pytest.mark.parametrize("amount", [1.0, 100.0, 900.0, 5000.0])
async def test_the_wait_that_is_told_is_exact(amount: float) -> None:
    meter = Meter(tokens(1000.0))
    assert await meter.lets_in(950.0)
    wait_s = await meter.wait_s(amount)
    assert (wait_s > 0) == (amount > 50)
    meter.clock.advance(max(0.0, wait_s - 0.01))
    assert wait_s == 0 or not await meter.lets_in(amount)
    meter.clock.advance(0.02)
    assert await meter.lets_in(amount)


async def test_over_many_minutes_reserved_and_settled_tokens_are_the_rate() -> None:
    meter, chance, made = Meter(tokens(6000.0)), random.Random(7), 0.0
    running: list[tuple[float, int, int]] = []
    start_s = meter.clock()
    while meter.clock() < start_s + 3600.0:
        meter.clock.advance(chance.expovariate(2.0))
        for done in [each for each in running if each[0] <= meter.clock()]:
            running.remove(done)
            meter.settle(done[2] - done[1])
            made += done[2]
        reserved = chance.randrange(1, 800)
        if await meter.lets_in(reserved):
            running.append((meter.clock() + chance.random() * 20, reserved, reserved // 2))
    assert 0.98 * 360_000 <= made <= 1.02 * 360_000 + meter.limit.size


async def test_a_cost_above_the_burst_is_let_in_when_all_is_there_and_paid_off_afterwards() -> None:
    meter = Meter(tokens(60.0))
    assert await meter.lets_in(600.0)
    assert meter.left == 0.0
    meter.clock.advance(539.0)
    assert not await meter.lets_in(1.0)
    meter.clock.advance(2.0)
    assert await meter.lets_in(1.0)


async def test_what_is_given_back_is_there_at_once_and_never_more_than_a_burst() -> None:
    meter = Meter(tokens(100.0))
    assert await meter.lets_in(60.0) and not await meter.lets_in(60.0)
    meter.settle(-50.0)
    assert await meter.lets_in(60.0)
    meter.settle(-500.0)
    assert meter.left == pytest.approx(100.0)


async def test_nothing_is_taken_where_one_limit_is_short() -> None:
    clock = ManualClock()
    store = MemoryLimits(clock)
    wide, narrow = tokens(1000.0), Rate("key/input", LimitKind.INPUT, 10.0)
    shortage = await store.take([(narrow, 10.0), (wide, 10.0)])
    assert shortage is None
    shortage = await store.take([(wide, 10.0), (narrow, 1.0)])
    assert shortage is not None and shortage.limit is narrow
    assert store.left(wide).amount == pytest.approx(990.0)


async def test_a_budget_is_spent_until_its_period_is_over() -> None:
    meter = Meter(TokenBudget("key/budget", tokens=100.0, period_s=3600.0))
    assert await meter.lets_in(60.0) and await meter.lets_in(60.0)
    meter.clock.advance(600.0)
    assert await meter.wait_s(1.0) == 3000.0
    meter.settle(-30.0)
    assert await meter.lets_in(0.0)
    assert meter.left == 10.0
    meter.clock.advance(3001.0)
    assert meter.left == 100.0 and await meter.lets_in(100.0)


async def test_what_a_period_has_kept_for_an_answer_is_no_more_tokens_of_the_next() -> None:
    clock = ManualClock()
    store = MemoryLimits(clock)
    account = Account([budget := TokenBudget("key/budget", tokens=1000.0, period_s=60.0)], store)
    (await account.reserve(999, 0)).settle(999, 0)
    last = await account.reserve(1, 100_000)
    within = store.left(budget).reset_s
    clock.advance(within + 1.0)
    (await account.reserve(1000, 0)).settle(1000, 0)
    last.settle(1, 1)  # of the period before
    with pytest.raises(BudgetSpent):
        await account.reserve(1, 0)


async def test_what_an_answer_did_not_need_is_there_again_in_its_own_period() -> None:
    clock = ManualClock()
    account = Account(
        [TokenBudget("key/budget", tokens=1000.0, period_s=60.0)], MemoryLimits(clock)
    )
    kept = await account.reserve(1, 100_000)
    clock.advance(59.0)
    kept.settle(1, 9)
    (await account.reserve(990, 0)).settle(990, 0)
    with pytest.raises(BudgetSpent):
        await account.reserve(1, 0)


async def test_of_many_limits_in_use_all_are_not_looked_through_with_every_request() -> None:
    clock = ManualClock()
    store = MemoryLimits(clock)
    store.hear({f"k{number}": (clock() + 60.0, 0.0) for number in range(MAX_STATES + 9)})
    limit = requests(60)
    for _ in range(4):
        before = store.states
        assert await store.take([(limit, 1.0)]) is None
        assert store.states is before
    clock.advance(61.0)
    store.hear({f"later{number}": (clock() + 60.0, 0.0) for number in range(2 * MAX_STATES)})
    assert len(store.states) == 2 * MAX_STATES
