"""So many requests a minute, and no more."""

from __future__ import annotations

import random

import pytest

from cluster.errors import RateLimited
from router.tenants.request_rate import BURST_S, LEAST_BURST, RequestRate
from tests.manual_clock import ManualClock


def is_let_in(rate: RequestRate) -> bool:
    try:
        rate.take()
    except RateLimited:
        return False
    return True


@pytest.mark.parametrize("per_minute", [0.5, 6.0, 60.0, 6000.0])
def test_over_ten_minutes_it_is_the_rate_whatever_the_pace(per_minute: float) -> None:
    clock, chance = ManualClock(), random.Random(1)
    rate = RequestRate(per_minute, clock)
    num_let_in, end_s = 0, clock() + 600.0
    while clock() < end_s:
        clock.advance(chance.expovariate(per_minute / 20.0))  # three times as often as allowed
        num_let_in += is_let_in(rate)
    burst = max(LEAST_BURST, per_minute / 60.0 * BURST_S)
    assert per_minute * 10 * 0.98 - 1 <= num_let_in <= per_minute * 10 * 1.001 + burst + 1


@pytest.mark.parametrize(("per_minute", "burst"), [(60.0, BURST_S), (1.0, LEAST_BURST)])
def test_what_was_not_asked_for_may_come_at_once_and_no_more(
    per_minute: float, burst: float
) -> None:
    clock = ManualClock()
    rate = RequestRate(per_minute, clock)
    clock.advance(3600.0)
    assert sum(is_let_in(rate) for _ in range(100)) == burst


def test_the_wait_that_is_told_is_exact() -> None:
    clock = ManualClock()
    rate = RequestRate(30.0, clock)
    while is_let_in(rate):
        pass
    with pytest.raises(RateLimited, match="30 requests a minute") as refused:
        rate.take()
    wait_s = refused.value.retry_after_s
    assert wait_s is not None and 0 < wait_s <= 2.0
    clock.advance(wait_s * 0.999)
    assert not is_let_in(rate)
    clock.advance(wait_s * 0.002)
    assert is_let_in(rate) and not is_let_in(rate)
