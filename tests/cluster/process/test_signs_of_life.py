"""What a process says of itself to its supervisor, and how silence is counted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.process.background import cancel
from cluster.process.cpu_time import cpu_ticks
from cluster.process.exit_watch import exit_of
from cluster.process.silence import Silence
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


async def test_a_process_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setenv(REPORT_FD, str(write_end))
    saying = asyncio.create_task(report_life())
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells on Linux")
def test_work_of_a_process_and_of_what_it_started_is_seen_and_waiting_is_not() -> None:
    work = "x = 0\nwhile True: x += 1"
    source = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    with subprocess.Popen([sys.executable, "-c", source], start_new_session=True) as parent:
        try:
            before, looks = cpu_ticks(parent.pid), 0
            while (cpu_ticks(parent.pid) or 0) < (before or 0) + 20:
                looks += 1
                os.sched_yield()
        finally:
            os.killpg(parent.pid, 9)
    assert looks > 0
    assert cpu_ticks(parent.pid) is None


def test_a_kernel_of_another_kind_does_not_tell(tmp_path: Path) -> None:
    assert cpu_ticks(os.getpid(), tmp_path) is None


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
