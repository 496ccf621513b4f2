"""A supervisor over processes that a test plays, in a time of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from cluster.launcher.protocol import Launcher, ProcessExit, ProcessHandle, ProcessSpec
from cluster.process.backoff import Backoff
from cluster.process.exit_watch import KILL_TIMEOUT_S
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.startup import (
    Leaving,
    ProcessReport,
    StartupFailed,
    StartupReady,
    StillAlive,
)
from cluster.supervisor.child import START_EXCUSE_S, StartFailed
from cluster.supervisor.news import News, Restarting, Retiring
from cluster.supervisor.supervisor import Supervisor
from tests.virtual_time import VirtualTime, settle

NO_PROCESS = 2**22 + 1
"""Over the highest pid that Linux gives."""


class PlayedProcess(ProcessHandle):
    """Says and ends as the test wants; a driver may keep it, whatever kills it."""

    pid = NO_PROCESS

    def __init__(self) -> None:
        self._reports: asyncio.Queue[ProcessReport] = asyncio.Queue()
        self._ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self.is_kept = False

    def say(self, report: ProcessReport) -> None:
        self._reports.put_nowait(report)

    async def reports(self) -> AsyncIterator[ProcessReport]:
        while True:
            yield await self._reports.get()

    def end(self, status: int) -> None:
        self._ended.set_result(ProcessExit(status=status))

    async def wait(self) -> ProcessExit:
        return await asyncio.shield(self._ended)

    def signs_of_life(self) -> SignsOfLife | None:
        return SignsOfLife.of_main_thread(self.pid)

    def stop(self, *, at_once: bool = False) -> None:
        if not self._ended.done() and not self.is_kept:
            self._ended.set_result(ProcessExit(status=-9 if at_once else 0))


class PlayedLauncher(Launcher):
    """Its processes are ready at once, unless a test says otherwise."""

    def __init__(self, clock: VirtualTime) -> None:
        self.are_ready = True
        self.processes: list[PlayedProcess] = []
        self.launched_s: list[float] = []
        self._clock = clock

    async def launch(self, spec: ProcessSpec) -> PlayedProcess:
        self.launched_s.append(self._clock())
        self.processes.append(PlayedProcess())
        if self.are_ready:
            self.processes[-1].say(StartupReady("127.0.0.1:9"))
        return self.processes[-1]


SPEC = ProcessSpec(name="decode-0", argv=(), silence_s=10.0, start_timeout_s=20.0)


class Stage:
    """One process that serves."""

    def __init__(self) -> None:
        self.time, self.news = VirtualTime(), list[News]()
        self.launcher = PlayedLauncher(self.time)
        self.supervisor = Supervisor(
            self.launcher,
            self.news.append,
            backoff=lambda: Backoff(1.0, 8.0),
            clock=self.time,
            sleep=self.time.sleep,
        )

    async def begin(self) -> None:
        await self.supervisor.start([[SPEC]])

    @property
    def restarts(self) -> list[Restarting]:
        return [piece for piece in self.news if isinstance(piece, Restarting)]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    running = Stage()
    await running.begin()
    yield running
    await running.supervisor.stop(0.0)


async def test_a_process_that_ends_again_and_again_is_started_later_each_time(
    stage: Stage,
) -> None:
    for _ in range(4):
        await settle()
        stage.launcher.processes[-1].stop(at_once=True)
        await stage.time.advance(9.0)
    launched_s = [moment - stage.launcher.launched_s[0] for moment in stage.launcher.launched_s]
    assert launched_s == [0.0, 0 * 9 + 1.0, 1 * 9 + 2.0, 2 * 9 + 4.0, 3 * 9 + 8.0]
    await stage.time.advance(60.0)  # a minute of health
    stage.launcher.processes[-1].stop(at_once=True)
    await stage.time.advance(1.0)
    assert len(stage.launcher.processes) == 6


async def test_a_process_that_says_no_more_that_it_lives_is_ended_after_its_limit(
    stage: Stage,
) -> None:
    for _ in range(60):
        stage.launcher.processes[0].say(StillAlive())
        await stage.time.advance(1.0)
    assert stage.restarts == []
    await stage.time.advance(8.0)
    assert stage.restarts == []
    await stage.time.advance(2.0)
    [restart] = stage.restarts
    assert restart.failure.cause == "stuck: it gave no sign of life for 10 s and was ended"


async def test_a_process_that_takes_no_requests_any_more_is_told_of_before_it_ends(
    stage: Stage,
) -> None:
    stage.launcher.processes[0].say(StillAlive())
    stage.launcher.processes[0].say(Leaving("rank_lost"))
    await settle()
    assert Retiring("decode-0") in stage.news and stage.restarts == []
    stage.launcher.processes[0].end(1)
    await settle()
    assert [piece.failure.kind for piece in stage.restarts] == ["rank_lost"]


@pytest.mark.parametrize(
    ("left", "status", "kind"),
    [
        ((), 3, "exit code 3"),
        ((), -9, "signal SIGKILL"),
        ((Leaving(),), 0, "exit code 0"),
        ((Leaving(), Leaving("worker_lost")), 1, "worker_lost"),
        ((Leaving("worker_lost"), Leaving()), 1, "worker_lost"),
    ],
)
async def test_a_restart_is_counted_by_what_the_process_ended_by(
    left: tuple[Leaving, ...], status: int, kind: str, stage: Stage
) -> None:
    for report in left:
        stage.launcher.processes[0].say(report)
    await settle()
    stage.launcher.processes[0].end(status)
    await settle()
    assert [piece.failure.kind for piece in stage.restarts] == [kind]


async def test_a_stuck_process_and_a_start_that_fails_are_causes_of_their_own(
    stage: Stage,
) -> None:
    stage.launcher.are_ready = False
    stage.launcher.processes[0].say(StillAlive())
    await stage.time.advance(13.0)
    stage.launcher.processes[1].say(StartupFailed("disk_full", "1 byte free"))
    stage.launcher.processes[1].end(1)
    await stage.time.advance(1.0)
    assert [piece.failure.kind for piece in stage.restarts] == ["stuck", "start_failed"]


async def test_a_process_that_is_of_no_use_is_ended_and_started_again(stage: Stage) -> None:
    stage.supervisor.end("decode-0", "it was a spare that could not be promoted")
    await stage.time.advance(1.0)
    (restart,) = stage.restarts
    assert (restart.failure.kind, len(stage.launcher.processes)) == ("useless", 2)
    assert "could not be promoted" in restart.failure.cause


async def test_a_process_that_cannot_be_killed_is_given_up_and_another_one_serves(
    stage: Stage,
) -> None:
    kept = stage.launcher.processes[0]
    kept.say(StillAlive())
    kept.is_kept = True
    await stage.time.advance(10.0 + 2.0 + KILL_TIMEOUT_S + 1.0)
    assert [piece.failure.cause for piece in stage.restarts] == [
        "stuck: it gave no sign of life for 10 s and was ended"
    ]
    assert len(stage.launcher.processes) == 2


async def test_a_stop_does_not_wait_for_a_process_that_cannot_be_killed(stage: Stage) -> None:
    stage.launcher.processes[0].is_kept = True
    stopping = asyncio.create_task(stage.supervisor.stop(0.0))
    await stage.time.advance(KILL_TIMEOUT_S - 0.5)
    assert not stopping.done()
    await stage.time.advance(0.5)
    stage.launcher.processes[0].is_kept = False
    assert stopping.done()


async def starting(stage: Stage) -> asyncio.Task[None]:
    """Of another process, which never says that it is ready."""
    stage.launcher.are_ready = False
    task = asyncio.create_task(stage.supervisor.start([[SPEC]]))
    await settle()
    return task


async def test_a_start_that_hangs_in_a_process_that_cannot_be_killed_fails(stage: Stage) -> None:
    task = await starting(stage)
    kept = stage.launcher.processes[-1]
    kept.is_kept = True
    await stage.time.advance(20.0 + 2.0 + 2 * KILL_TIMEOUT_S)
    kept.is_kept = False
    assert task.done()
    with pytest.raises(StartFailed, match="made no progress while it started for 20 s"):
        await task


async def test_a_start_that_waits_for_a_core_or_a_page_is_excused_for_a_minute(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_up = SignsOfLife(is_stopped=False, is_busy=True, cpu_ticks=7)
    monkeypatch.setattr(SignsOfLife, "of_main_thread", lambda pid: held_up)
    task = await starting(stage)
    await stage.time.advance(START_EXCUSE_S + 20.0 - 2.0)
    assert not task.done()
    await stage.time.advance(4.0 + KILL_TIMEOUT_S)  # it closes no pipe as it ends
    assert task.done()
    with pytest.raises(StartFailed, match="made no progress"):
        await task


def given_up(said: list[EventDict]) -> int:
    return sum("is given up" in line["event"] for line in said)


async def test_a_stop_that_turns_into_a_kill_waits_out_no_grace(stage: Stage) -> None:
    kept = stage.launcher.processes[0]
    kept.is_kept = True
    with capture_logs() as said:
        stopping = asyncio.create_task(stage.supervisor.stop(1000.0))
        await settle()
        stage.supervisor.kill()
        await stage.time.advance(KILL_TIMEOUT_S)
        kept.is_kept = False
    assert stopping.done()
    assert given_up(said) == 1


async def test_a_stop_does_not_wait_for_a_process_that_was_given_up_before(stage: Stage) -> None:
    kept = stage.launcher.processes[0]
    kept.say(StillAlive())
    kept.is_kept = True
    with capture_logs() as said:
        while not stage.restarts:
            await stage.time.advance(0.5)
        assert len(stage.launcher.processes) == 1, "the next start comes a second later"
        stopping = asyncio.create_task(stage.supervisor.stop(1000.0))
        await settle()
        is_done, kept.is_kept = stopping.done(), False
    assert is_done and given_up(said) == 1
