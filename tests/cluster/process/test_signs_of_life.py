"""What a process says of itself to its supervisor, and how silence is counted."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.process.background import cancel
from cluster.process.exit_watch import exit_of
from cluster.process.signs_of_life import SignsOfLife
from cluster.process.silence import EXCUSES, Silence
from cluster.process.startup import (
    REPORT_FD,
    StillAlive,
    parse_report,
    report_life,
    report_progress,
)
from tests.engine.step.engine_scenario import VirtualClock


def test_silence_is_counted_in_ticks_that_came_on_time() -> None:
    clock = VirtualClock()
    silence = Silence(4.0, clock=clock)
    for _ in range(8):
        clock.now_s += silence.interval_s
        assert not silence.tick()
    clock.now_s += 1e6  # we slept
    assert silence.tick() is (8 * silence.interval_s + 2 * silence.interval_s > 4.0)
    silence.heard()
    clock.now_s += 1e6
    assert not silence.tick()


def test_time_in_which_the_other_could_not_speak_does_not_count_for_a_while() -> None:
    clock = VirtualClock()
    silence = Silence(4.0, clock=clock)

    def ticks_to_the_limit(*, is_excused: bool) -> int:
        silence.heard()
        for num_ticks in range(1, 1000):
            clock.now_s += silence.interval_s
            if silence.tick(is_excused=is_excused):
                return num_ticks
        raise AssertionError("it is never over the limit")

    plain = ticks_to_the_limit(is_excused=False)
    assert plain == 9
    assert ticks_to_the_limit(is_excused=True) == plain + EXCUSES * 8


async def test_a_process_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setenv(REPORT_FD, str(write_end))
    saying = asyncio.create_task(report_life(asyncio.sleep))
    with os.fdopen(read_end, "rb") as pipe:
        line = await asyncio.to_thread(pipe.readline)
    await cancel((saying,))
    os.close(write_end)
    assert parse_report(line) == StillAlive()


def test_a_supervisor_that_does_not_read_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setenv(REPORT_FD, str(write_end))
    for _ in range(20_000):  # more than a pipe holds
        report_progress("a phase with a name of some length", 0.5)
    assert os.environ[REPORT_FD] == str(write_end)
    os.close(read_end)
    os.close(write_end)


ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells there")
WORK_TICKS = 50
"""Half a second: more than a start takes."""
POLL_S = 0.02
WORK = "x = 0\nwhile True: x += 1"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORK!r}])"
IN_A_THREAD = f"import threading; t = threading.Thread(target=exec, args=({WORK!r},)); t.start(); "


@ON_LINUX
@pytest.mark.parametrize(
    "source",
    [
        IN_A_CHILD,
        IN_A_THREAD + "t.join()",
        f"import threading; t = threading.Thread(target=exec, args=({IN_A_CHILD!r},)); t.start()",
    ],
    ids=["in a child", "in a thread", "in a child of a thread"],
)
def test_work_that_a_main_thread_waits_for_is_seen(source: str) -> None:
    with subprocess.Popen([sys.executable, "-c", source], start_new_session=True) as waits:
        try:
            before = signs(waits.pid)
            wait_for_work(waits.pid, before)
            assert signs(waits.pid).show_work(before)
        finally:
            os.killpg(waits.pid, signal.SIGKILL)
    assert SignsOfLife.of(waits.pid) is None


@ON_LINUX
def test_a_stopped_process_shows_no_work_though_its_child_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-c", IN_A_CHILD], start_new_session=True) as waits:
        try:
            before = signs(waits.pid)
            wait_for_work(waits.pid, before)
            os.kill(waits.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, waits.pid, os.WSTOPPED)
            now = signs(waits.pid)
            assert now.is_stopped and not now.show_work(before)
        finally:
            os.killpg(waits.pid, signal.SIGKILL)


def wait_for_work(pid: int, before: SignsOfLife) -> None:
    while signs(pid).cpu_ticks < before.cpu_ticks + WORK_TICKS:
        select.select((), (), (), POLL_S)  # a loop that spins takes a core as well


def signs(pid: int) -> SignsOfLife:
    seen = SignsOfLife.of(pid)
    assert seen is not None
    return seen


class FakeProc:
    """A /proc that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, pid: int, threads: str, ticks: int = 0, children: tuple[int, ...] = ()) -> None:
        """A state for each thread; the first is the main one. The last has started the children."""
        for number, state in enumerate(threads):
            task = self.folder / f"{pid}/task/{pid + number}"
            task.mkdir(parents=True, exist_ok=True)
            (task / "stat").write_text(stat_of(state, 0))
            (task / "children").write_text("")
        (task / "children").write_text(" ".join(map(str, children)))
        (self.folder / f"{pid}/stat").write_text(stat_of(threads[0], ticks))

    def look(self, pid: int) -> SignsOfLife:
        seen = SignsOfLife.of(pid, self.folder)
        assert seen is not None
        return seen


def stat_of(state: str, ticks: int) -> str:
    return f"1 (an odd (name)) {state} {'0 ' * 10}{ticks} 0 0 0 20 0"


def test_a_process_that_gets_no_core_or_no_page_is_told_from_one_that_stands_still(
    tmp_path: Path,
) -> None:
    proc = FakeProc(tmp_path)
    for threads in ("S", "SSS", "Z"):
        proc.has(10, threads)
        assert not proc.look(10).show_work(proc.look(10)), threads
    for threads in ("R", "D", "SSR", "SDS"):
        proc.has(10, threads)
        assert proc.look(10).show_work(proc.look(10)), threads
    proc.has(10, "TTT")
    assert not proc.look(10).show_work(None)


def test_a_child_counts_whichever_thread_has_started_it_and_once_it_has_ended(
    tmp_path: Path,
) -> None:
    proc = FakeProc(tmp_path)
    proc.has(10, "SS", ticks=5, children=(20,))
    proc.has(20, "S", ticks=7, children=(30, 40))
    proc.has(30, "S", ticks=1)
    before = proc.look(10)
    assert (before.cpu_ticks, before.is_busy) == (13, False)
    proc.has(30, "SR", ticks=1)
    assert proc.look(10).show_work(before)
    proc.has(10, "SS", ticks=15)  # waited for: its time is its parent's
    assert proc.look(10).show_work(before)


@pytest.mark.parametrize(
    ("state", "num_ticks", "is_held_up"),
    [("R", 0, True), ("D", 0, True), ("R", 25, False), ("S", 0, False), ("T", 0, False)],
)
def test_a_main_thread_that_would_run_and_gets_nowhere_is_held_up(
    tmp_path: Path, state: str, num_ticks: int, is_held_up: bool
) -> None:
    task = tmp_path / "10/task/10"
    task.mkdir(parents=True)
    seen: list[SignsOfLife] = []
    for ticks in (100, 100 + num_ticks):
        (task / "stat").write_text(stat_of(state, ticks))
        signs_now = SignsOfLife.of_main_thread(10, tmp_path)
        assert signs_now is not None
        seen.append(signs_now)
    assert seen[1].are_held_up(seen[0]) == is_held_up
    assert not seen[0].are_held_up(None)


def test_a_thread_that_wakes_up_now_and_then_is_no_work(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.has(10, "SS", ticks=5)
    before = proc.look(10)
    proc.has(10, "SS", ticks=6)
    assert not proc.look(10).show_work(before)


def test_a_kernel_of_another_kind_does_not_tell(tmp_path: Path) -> None:
    assert SignsOfLife.of(os.getpid(), tmp_path) is None


async def test_an_exit_is_noticed_though_somebody_holds_the_pipe() -> None:
    helper = "import time; time.sleep(60)"
    source = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {helper!r}]).pid)"
    )
    child = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    async with asyncio.timeout(30):
        assert await exit_of(child) == 0
        assert await exit_of(child) == 0  # once more: it has been reaped
    assert child.stdout is not None
    os.kill(int(child.stdout.readline()), 9)
    child.stdout.close()
