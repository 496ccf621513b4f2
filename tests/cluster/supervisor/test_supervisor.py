"""The supervisor over real child processes that are tiny programs."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from cluster.launcher.local import LocalLauncher, LocalProcess
from cluster.launcher.protocol import ProcessExit, ProcessSpec
from cluster.process import silence
from cluster.process.backoff import HEALTHY_AFTER_S, Backoff
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.silence import Silence
from cluster.process.startup import StartupFailed
from cluster.supervisor import child as child_module
from cluster.supervisor.child import StartFailed
from cluster.supervisor.failure import explain
from cluster.supervisor.news import Loading, News, Restarting, Serving, Stopping
from cluster.supervisor.supervisor import Supervisor
from tests.cluster.child_programs import (
    DIES_WHEN_READY,
    IGNORES_SIGTERM,
    KILLED,
    LIVES_ON,
    LIVES_UNTIL_STOPPED,
    NEVER_READY,
    RAISES,
    REPORTS_FAILURE,
    SERVES_UNTIL_SIGTERM,
    program,
)

DEADLINE_S = 120.0
ODD_LIMIT_S = 1.25
SAYS_ONCE_THAT_IT_LIVES = "report('alive'); ready(); signal.pause()"


class Newsroom:
    """Keeps the news, and lets a test wait for a piece of it."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self._more = asyncio.Event()

    def __call__(self, piece: News) -> None:
        self.news.append(piece)
        self._more.set()

    def of(self, kind: type) -> list[News]:
        return [piece for piece in self.news if isinstance(piece, kind)]

    async def wait_for(self, kind: type, count: int) -> list[News]:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.of(kind)) < count:
                self._more.clear()
                await self._more.wait()
        return self.of(kind)


@pytest.fixture
def newsroom() -> Newsroom:
    return Newsroom()


@pytest.fixture
async def supervisor(newsroom: Newsroom, tmp_path: Path) -> AsyncIterator[Supervisor]:
    launcher = LocalLauncher(log_dir=tmp_path, on_warning=lambda name, level, text: None)
    supervisor = Supervisor(launcher, newsroom, backoff=lambda: Backoff(0.01, 0.05))
    yield supervisor
    supervisor.kill()
    await supervisor.stop(0.0)


def named(name: str, source: str = SERVES_UNTIL_SIGTERM) -> ProcessSpec:
    return program(source, name=name)


async def test_a_stage_starts_when_the_one_before_is_ready(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    await supervisor.start([[named("router")], [named("prefill-0"), named("decode-0")]])
    serving = [piece.name for piece in newsroom.news if isinstance(piece, Serving)]
    first_worker_news = next(p for p in newsroom.news if p.name != "router")  # type: ignore[union-attr]
    assert serving[0] == "router" and set(serving) == {"router", "prefill-0", "decode-0"}
    assert newsroom.news.index(first_worker_news) > newsroom.news.index(newsroom.of(Serving)[0])
    assert Loading("router", "loading", 0.5) in newsroom.news


async def test_stop_ends_everything_the_first_stage_first(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    await supervisor.start([[named("router")], [named("prefill-0"), named("decode-0")]])
    pids = [child.pid for child in supervisor.children]
    await supervisor.stop(10.0)
    assert [piece.names for piece in newsroom.of(Stopping)] == [  # type: ignore[union-attr]
        ("router",),
        ("prefill-0", "decode-0"),
    ]
    assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
    assert newsroom.of(Restarting) == []


async def test_a_process_that_does_not_stop_in_time_is_killed(supervisor: Supervisor) -> None:
    await supervisor.start([[named("deaf", IGNORES_SIGTERM)]])
    (child,) = supervisor.children
    assert child.pid is not None
    await supervisor.stop(0.05)
    assert not psutil.pid_exists(child.pid)


async def test_kill_cuts_a_graceful_stop_short(supervisor: Supervisor, newsroom: Newsroom) -> None:
    await supervisor.start([[named("deaf", IGNORES_SIGTERM)]])
    stopping = asyncio.create_task(supervisor.stop(3600.0))
    await newsroom.wait_for(Stopping, 1)
    supervisor.kill()
    async with asyncio.timeout(DEADLINE_S):
        await stopping


async def test_a_dead_process_is_started_again_under_its_name(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    await supervisor.start([[named("decode-0")]])
    (child,) = supervisor.children
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    first, second = await newsroom.wait_for(Serving, 2)
    assert isinstance(first, Serving) and isinstance(second, Serving)
    assert first.name == second.name == "decode-0" and first.pid != second.pid
    (restarting,) = newsroom.of(Restarting)
    assert isinstance(restarting, Restarting)
    assert restarting.failure.how == "signal SIGKILL" and "memory" in restarting.failure.remedy


async def test_a_launch_that_fails_by_whatever_cause_is_tried_again(
    supervisor: Supervisor, newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    await supervisor.start([[named("worker")]])
    (child,) = supervisor.children
    launch, failures = LocalLauncher.launch, [OSError(24, "Too many open files"), RuntimeError("x")]

    async def launch_at_last(launcher: LocalLauncher, spec: ProcessSpec) -> LocalProcess:
        if failures:
            raise failures.pop()
        return await launch(launcher, spec)

    monkeypatch.setattr(LocalLauncher, "launch", launch_at_last)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    await newsroom.wait_for(Serving, 2)
    assert len(newsroom.of(Restarting)) == 3


async def test_a_process_that_dies_again_and_again_waits_longer_each_time(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    await supervisor.start([[named("decode-0", DIES_WHEN_READY)]])
    deaths = await newsroom.wait_for(Restarting, 4)
    assert [d.delay_s for d in deaths[:4]] == [0.01, 0.02, 0.04, 0.05]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "how", "cause"),
    [
        (REPORTS_FAILURE, "exit code 1", "disk_full: 1 byte free, 2 needed"),
        (RAISES, "exit code 1", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        (KILLED, "signal SIGKILL", "killed from outside, or by the kernel for lack of memory"),
        ("pass", "exit code 0", "it printed no reason"),
    ],
)
async def test_a_start_that_fails_is_told_once_with_its_cause(
    supervisor: Supervisor, newsroom: Newsroom, source: str, how: str, cause: str
) -> None:
    with pytest.raises(StartFailed) as caught:
        await supervisor.start([[named("router")], [named("decode-0", source), named("good")]])
    failure = caught.value.failure
    assert (failure.name, failure.how, failure.cause) == ("decode-0", how, cause)
    assert newsroom.of(Restarting) == []


async def test_a_start_that_fails_leaves_nothing_after_stop(supervisor: Supervisor) -> None:
    with pytest.raises(StartFailed):
        await supervisor.start(
            [[named("router"), named("bad", RAISES), named("slow", "signal.pause()")]]
        )
    await supervisor.stop(10.0)
    assert not any(psutil.pid_exists(child.pid or 0) for child in supervisor.children)


async def test_a_program_that_cannot_run_at_all_is_a_failed_start(supervisor: Supervisor) -> None:
    with pytest.raises(StartFailed, match="/no/such/program"):
        await supervisor.start([[ProcessSpec(name="x", argv=("/no/such/program",))]])


def test_back_off_doubles_to_its_limit_and_starts_anew_after_health() -> None:
    backoff = Backoff()
    delays = [backoff.next_delay_s(healthy_s=1.0) for _ in range(8)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff.next_delay_s(healthy_s=HEALTHY_AFTER_S) == 0.5


def test_the_cause_of_a_chain_of_exceptions_is_the_first() -> None:
    tail = (
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in <module>',
        "torch.OutOfMemoryError: no 4 GiB",
        "During handling of the above exception, another exception occurred:",
        "Traceback (most recent call last):",
        "RuntimeError: engine core failed, see above",
    )
    failure = explain("decode-0", ProcessExit(status=1, tail=tail, log="/logs/d.log"), None)
    assert failure.cause == "torch.OutOfMemoryError: no 4 GiB"
    assert "/logs/d.log" in failure.remedy


def test_without_a_traceback_the_last_logged_error_is_the_cause() -> None:
    tail = (
        '{"level": "error", "event": "engine lost", "exception": "Traceback\\nOSError: gone"}',
        '{"level": "info", "event": "leaving"}',
    )
    failure = explain("decode-0", ProcessExit(status=3, tail=tail), None)
    assert failure.cause == "engine lost OSError: gone"


def test_the_words_of_the_process_itself_come_first() -> None:
    ended = ProcessExit(status=1, tail=("ValueError: something else",))
    failure = explain("router", ended, StartupFailed("config_error", "port 1 is taken"))
    assert failure.cause == "config_error: port 1 is taken" and failure.remedy == ""


async def test_stop_during_a_back_off_does_not_wait_for_it(newsroom: Newsroom) -> None:
    launcher = LocalLauncher(log_dir=None, on_warning=lambda name, level, text: None)
    supervisor = Supervisor(launcher, newsroom, backoff=lambda: Backoff(3600.0, 3600.0))
    await supervisor.start([[named("decode-0", DIES_WHEN_READY)]])
    await newsroom.wait_for(Restarting, 1)
    began = time.monotonic()
    await supervisor.stop(10.0)
    assert time.monotonic() - began < DEADLINE_S


def impatient(spec: ProcessSpec) -> ProcessSpec:
    return dataclasses.replace(spec, start_timeout_s=1.0, silence_s=1.0)


async def test_a_process_that_stands_still_is_killed_and_started_again(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    await supervisor.start([[impatient(named("decode-0", LIVES_UNTIL_STOPPED))]])
    first, second = (await newsroom.wait_for(Serving, 2))[:2]
    assert isinstance(first, Serving) and isinstance(second, Serving)
    assert not psutil.pid_exists(first.pid)
    failure = newsroom.of(Restarting)[0].failure  # type: ignore[union-attr]
    assert (failure.how, failure.cause) == (
        "signal SIGKILL",
        "stuck: it gave no sign of life for 1 s and was ended",
    )


async def test_signs_of_life_are_enough_and_a_process_that_never_gave_one_is_not_judged(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    lively, quiet = impatient(named("lively", LIVES_ON)), impatient(named("quiet"))
    stopped = impatient(named("stopped", LIVES_UNTIL_STOPPED))
    await supervisor.start([[lively, quiet, stopped]])
    await newsroom.wait_for(Restarting, 2)
    assert {piece.failure.name for piece in newsroom.of(Restarting)} == {"stopped"}  # type: ignore[union-attr]


async def test_a_silent_process_that_gets_no_core_is_let_be_and_one_that_sleeps_is_not(
    supervisor: Supervisor, newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(pid: int) -> SignsOfLife:
        starved = next(piece for piece in newsroom.of(Serving) if piece.name == "starved")  # type: ignore[union-attr]
        is_busy = pid == starved.pid  # type: ignore[union-attr]
        return SignsOfLife(is_stopped=False, is_busy=is_busy, cpu_ticks=7)

    specs = [impatient(named(name, SAYS_ONCE_THAT_IT_LIVES)) for name in ("starved", "asleep")]
    await supervisor.start([specs])
    monkeypatch.setattr(SignsOfLife, "of_main_thread", look)
    monkeypatch.setattr(silence, "EXCUSES", math.inf)  # however long the other's restarts take
    await newsroom.wait_for(Restarting, 2)
    assert {piece.failure.name for piece in newsroom.of(Restarting)} == {"asleep"}  # type: ignore[union-attr]


class SilenceWithABug(Silence):
    """Of processes that are judged after ODD_LIMIT_S: the first sign of life is one too many."""

    num_heard = 0

    def heard(self) -> None:
        super().heard()
        if self.limit_s == ODD_LIMIT_S:
            SilenceWithABug.num_heard += 1
            if SilenceWithABug.num_heard == 1:
                raise KeyError("a bug of ours")


async def test_a_bug_in_the_watch_over_a_process_is_told_and_the_watch_goes_on(
    supervisor: Supervisor,
    newsroom: Newsroom,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(child_module, "Silence", SilenceWithABug)
    spec = named("decode-0", LIVES_UNTIL_STOPPED.replace("ready();", "ready(); report('alive');"))
    await supervisor.start([[dataclasses.replace(spec, silence_s=ODD_LIMIT_S)]])
    await newsroom.wait_for(Restarting, 1)
    said = "".join(capsys.readouterr())
    assert "signs of life of decode-0" in said and "a bug of ours" in said


async def test_a_first_start_without_progress_is_a_failed_start(supervisor: Supervisor) -> None:
    with pytest.raises(StartFailed, match="no progress while it started for 1 s"):
        await supervisor.start([[impatient(named("decode-0", NEVER_READY))]])


async def test_a_restart_without_progress_is_ended_and_tried_again(
    supervisor: Supervisor, newsroom: Newsroom, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    source = f"""
if os.path.exists({str(mark)!r}):
    signal.pause()
open({str(mark)!r}, "w")
ready()
sys.exit(1)
"""
    await supervisor.start([[impatient(named("decode-0", source))]])
    news = await newsroom.wait_for(Restarting, 3)
    assert [piece.failure.cause.split(":")[0] for piece in news[1:3]] == ["stuck", "stuck"]  # type: ignore[union-attr]


async def test_a_terminal_that_is_gone_does_not_keep_a_process_from_its_restart(
    tmp_path: Path,
) -> None:
    newsroom = Newsroom()

    def broken_terminal(piece: News) -> None:
        newsroom(piece)
        raise OSError("Input/output error")

    launcher = LocalLauncher(log_dir=tmp_path, on_warning=lambda name, level, text: None)
    supervisor = Supervisor(launcher, broken_terminal, backoff=lambda: Backoff(0.01, 0.05))
    await supervisor.start([[named("decode-0", DIES_WHEN_READY)]])
    await newsroom.wait_for(Serving, 3)
    assert supervisor.loss is None
    supervisor.kill()
    await supervisor.stop(0.0)
