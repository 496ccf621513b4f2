"""The measure of the event loop's own lateness."""

from __future__ import annotations

import asyncio
import linecache
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from cluster.process.loop_lag import DEAD_S, INTERVAL_S, STALL_S, WINDOW_S, LoopLag
from cluster.process.stall_watch import stack_of


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def started(lag: LoopLag) -> AsyncIterator[LoopLag]:
    lag.start()
    try:
        yield lag
    finally:
        await lag.close()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def hold_the_loop(duration_s: float) -> None:
    """Work that lets other threads run and keeps the loop from its own."""
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        pass


async def until_ticked(lag: LoopLag) -> None:
    """A tick that was overdue has come."""
    async with asyncio.timeout(30.0):
        while lag.overdue_s > 0.0:
            await asyncio.sleep(0)


async def test_a_loop_that_is_held_is_late_by_that_long() -> None:
    async with started(LoopLag()) as lag:
        hold_the_loop(0.1)
        assert lag.recent_s >= 0.1 - INTERVAL_S


async def test_a_stall_counts_while_it_lasts_and_after_its_tick() -> None:
    clock = FakeClock()
    async with started(LoopLag(clock)) as lag:
        clock.now_s += 3.0
        assert lag.recent_s == pytest.approx(3.0 - INTERVAL_S)
        await until_ticked(lag)
        assert lag.recent_s == pytest.approx(3.0 - INTERVAL_S)


async def test_a_loop_that_stands_for_long_is_given_up_by_probes_until_it_goes_on() -> None:
    clock = FakeClock()
    async with started(LoopLag(clock)) as lag:
        clock.now_s += DEAD_S
        assert lag.why_it_stands() is None
        clock.now_s += 1.0
        assert lag.why_it_stands() == "the event loop has stood still for 21 s"
        await until_ticked(lag)
        assert lag.why_it_stands() is None


async def test_a_stall_is_forgotten_after_two_windows() -> None:
    clock = FakeClock()
    async with started(LoopLag(clock)) as lag:
        clock.now_s += 0.2
        await until_ticked(lag)
        await lag.close()
        clock.now_s += WINDOW_S
        assert lag.recent_s > 0.1
        clock.now_s += WINDOW_S
        assert lag.recent_s == 0.0


async def test_the_registry_shows_every_tick_and_the_longest() -> None:
    clock, registry = FakeClock(), CollectorRegistry()
    lag = LoopLag(clock)
    lag.publish(registry)
    async with started(lag):
        clock.now_s += 0.7
        await until_ticked(lag)
        longest = registry.get_sample_value("splitserve_loop_lag_max_seconds")
        late = registry.get_sample_value("splitserve_loop_lag_seconds_bucket", {"le": "0.5"})
        count = registry.get_sample_value("splitserve_loop_lag_seconds_count")
    assert longest == pytest.approx(0.7 - INTERVAL_S)
    assert late is not None and count is not None and count - late == 1.0


async def test_a_warning_names_what_held_the_loop(lines: list[Any]) -> None:
    async with started(LoopLag()) as lag:
        hold_the_loop(2 * STALL_S + 0.2)
        await until_ticked(lag)
    warning = next(line for line in lines if line["event"] == "the event loop was held")
    assert warning["late_s"] > STALL_S
    assert any("hold_the_loop" in call for call in warning["held_by"])


async def test_closing_ends_the_thread() -> None:
    async with started(LoopLag()):
        assert any(thread.name == "stall-watch" for thread in threading.enumerate())
    for thread in threading.enumerate():
        if thread.name == "stall-watch":
            thread.join(30.0)
            assert not thread.is_alive()


def test_to_say_where_a_loop_stands_keeps_no_source_files_in_memory() -> None:
    linecache.clearcache()
    innermost = stack_of(threading.get_ident())[-1]
    assert innermost.endswith(" stack_of")
    assert not linecache.cache
