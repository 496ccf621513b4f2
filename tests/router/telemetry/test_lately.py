"""The last ten seconds are told, and nothing that was before them."""

from __future__ import annotations

from random import Random
from statistics import quantiles

import pytest

from cluster.generation import Timing, Usage
from router.telemetry.lately import WINDOW_S, Lately, quantiles_of
from router.telemetry.metrics import RouterMetrics
from router.telemetry.quick_histogram import FINENESS, Buckets, finer
from tests.manual_clock import ManualClock


class Seconds:
    """A router's metrics, and a mark with each second that passes."""

    def __init__(self) -> None:
        self.metrics, self.clock = RouterMetrics(), ManualClock()
        self.lately = Lately(self.metrics, self.clock)

    def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.lately.mark()

    def answer(self, ttft_ms: float, *, cached: int = 0, kv_bytes: int = 0) -> None:
        usage = Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=cached)
        self.metrics.finished(usage, Timing(ttft_ms=ttft_ms, queue_ms=1.0, kv_bytes=kv_bytes))


def test_what_was_before_the_window_counts_no_more() -> None:
    now = Seconds()
    now.answer(5000.0, cached=100, kv_bytes=7)
    now.pass_by(3)
    assert now.lately.now().stages["ttft"].count == 1
    now.pass_by(WINDOW_S)
    for _ in range(4):
        now.answer(100.0, cached=25, kv_bytes=1000)
    said = now.lately.now()
    assert said.window_s == WINDOW_S
    assert said.stages["ttft"].count == 4
    assert said.stages["ttft"].p95_ms == pytest.approx(100.0, rel=FINENESS - 1)
    assert said.numbers["cached_tokens"] == 100 and said.numbers["prompt_tokens"] == 400
    assert said.numbers["kv_bytes"] == 4000


def test_a_young_router_tells_of_as_long_as_it_has_been_there() -> None:
    now = Seconds()
    now.pass_by(2)
    now.answer(10.0)
    assert now.lately.now().window_s == 2.0
    assert now.lately.now().stages["itl"].p50_ms == 0.0


def test_after_the_loop_stood_for_long_nothing_old_is_told_as_new() -> None:
    now = Seconds()
    now.answer(10.0)
    now.pass_by(1)
    now.clock.advance(60.0)
    now.lately.mark()
    assert now.lately.now().stages["ttft"].count == 0


def test_medians_are_as_near_as_the_buckets_are_fine() -> None:
    chance, told = Random(3), (0.002, 0.01, 0.1, 1.0, 30.0)
    series, seen = Buckets(told), []
    for _ in range(5000):
        seen.append(chance.lognormvariate(-3.0, 1.0))
        series.observe(seen[-1])
    found = quantiles_of(series.bounds, series.counts())
    cuts = quantiles(seen, n=20)
    assert found.count == 5000
    assert found.p50_ms == pytest.approx(1000 * cuts[9], rel=0.08)
    assert found.p95_ms == pytest.approx(1000 * cuts[18], rel=0.08)


def test_what_a_scrape_is_told_stands_among_the_finer_bounds() -> None:
    bounds = finer((0.005, 0.01, 10.0))
    assert {0.005, 0.01, 10.0} <= set(bounds) and list(bounds) == sorted(bounds)
    assert all(high / low <= FINENESS + 1e-9 for low, high in zip(bounds, bounds[1:], strict=False))
