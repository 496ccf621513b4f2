"""One process more than lanes: whoever comes after the end of one waits for no start."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psutil
import pytest
from prometheus_client import CollectorRegistry

from cluster.models.card import ModelCard
from cluster.process.background import Background, cancel
from router.telemetry.metrics import TextMetrics
from router.text_worker.lane import LONGEST_ABSENCE_S, TextLane
from router.text_worker.messages import Setup
from router.text_worker.spare import SpareProcess
from router.text_worker.text_process import TextProcess
from tests.manual_clock import ManualClock
from tests.router.front_fakes import until
from tests.router.text_worker.text_bench import HELLO_TASK, NAME, PLENTY, lane_of, pids

DEADLINE_S = 60.0


@asynccontextmanager
async def lane_with_spare(card: ModelCard) -> AsyncIterator[tuple[TextLane, SpareProcess]]:
    """Once both have a process."""
    setup = Setup(card, NAME, PLENTY)
    spare = SpareProcess(setup)
    alone = lane_of(setup, spare)
    background = Background(pytest.fail)
    background.keep("alone", alone.run)
    background.keep("spare", spare.run)
    try:
        await until(lambda: spare.pid is not None, "the spare one is there")
        yield alone, spare
    finally:
        await background.close()
        alone.close()


async def start_never(setup: Setup) -> TextProcess:
    await asyncio.Event().wait()
    raise AssertionError


async def test_who_comes_after_a_killed_worker_waits_for_no_start_of_a_process(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with lane_with_spare(card) as (alone, spare):
        await alone.call(HELLO_TASK)
        monkeypatch.setattr(TextProcess, "start", start_never)
        (idle,) = pids() - {spare.pid}
        os.kill(idle, signal.SIGKILL)
        await until(lambda: spare.pid is None, "the spare one takes its place")
        async with asyncio.timeout(DEADLINE_S):
            assert await alone.call(HELLO_TASK)
    said = "".join(capsys.readouterr())
    (line,) = [line for line in said.splitlines() if "a text worker ended with -9" in line]
    assert "it is started again" in line
    assert "Traceback" not in said


async def test_a_chat_that_comes_as_an_idle_worker_has_just_ended_is_asked_of_the_next(
    card: ModelCard,
) -> None:
    async with lane_with_spare(card) as (alone, spare):
        await alone.call(HELLO_TASK)
        (idle,) = pids() - {spare.pid}
        os.kill(idle, signal.SIGKILL)
        with suppress(ChildProcessError):  # asyncio's thread was sooner
            os.waitid(os.P_PID, idle, os.WEXITED | os.WNOWAIT)
        assert await alone.call(HELLO_TASK)


async def test_a_spare_worker_that_ends_or_is_stopped_is_replaced_and_never_taken(
    card: ModelCard,
) -> None:
    async with lane_with_spare(card) as (alone, spare):
        for harm in (signal.SIGKILL, signal.SIGSTOP):
            harmed = spare.pid
            assert harmed is not None
            os.kill(harmed, harm)
            await until(lambda gone=harmed: spare.pid not in (None, gone), "another one is there")
            assert not psutil.pid_exists(harmed)
        pid = spare.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        assert spare.take() is None
        assert await alone.call(HELLO_TASK)


async def test_a_process_of_the_lane_for_bodies_steps_back_also_when_it_was_the_spare(
    card: ModelCard,
) -> None:
    setup = Setup(card, NAME, PLENTY)
    spare = SpareProcess(setup)
    keeping = asyncio.ensure_future(spare.run())
    spare.refill()
    await until(lambda: spare.pid is not None, "the spare one is there")
    taken = spare.take()
    assert taken is not None
    try:
        assert psutil.Process(taken.pid).nice() == os.nice(0)
        await taken.begin(3)
        await until(lambda: psutil.Process(taken.pid).nice() == os.nice(0) + 3, "it steps back")
    finally:
        await cancel([keeping])
        await taken.end()


async def test_a_start_that_is_cancelled_wherever_it_stands_leaves_no_process(
    card: ModelCard,
) -> None:
    for num_turns in range(16):  # from the third on it is there, and loads
        starting = asyncio.ensure_future(TextProcess.start(Setup(card, NAME, PLENTY)))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        await cancel([starting])
        assert pids() == set()


async def test_a_router_is_not_ready_before_its_texts_have_had_a_process_however_short_that_is(
    card: ModelCard,
) -> None:
    """Kubernetes ends the router before it once it is, and clients would meet nobody where it took
    that back."""
    clock = ManualClock()
    setup = Setup(card, NAME, PLENTY)
    metrics = TextMetrics(CollectorRegistry())
    lane = TextLane(setup, "alone", metrics, spare=SpareProcess(setup), clock=clock)
    assert lane.why_not_ready() == "the alone process has not started yet"
    running = asyncio.ensure_future(lane.run())
    await asyncio.sleep(0)
    assert lane.why_not_ready() is not None
    try:
        await until(lambda: lane.why_not_ready() is None, "it has one")
    finally:
        await cancel([running])


async def test_a_router_is_not_ready_once_its_texts_have_had_no_process_for_a_while(
    card: ModelCard,
) -> None:
    clock = ManualClock()
    setup = Setup(card, NAME, PLENTY)
    metrics = TextMetrics(CollectorRegistry())
    lane = TextLane(setup, "alone", metrics, spare=SpareProcess(setup), clock=clock)
    running = asyncio.ensure_future(lane.run())
    await until(lambda: lane.why_not_ready() is None, "it has one")
    await cancel([running])
    clock.advance(LONGEST_ABSENCE_S - 0.5)
    assert lane.why_not_ready() is None
    clock.advance(1.5)
    assert lane.why_not_ready() == "the alone process has not been there for 6 s"
