"""Local processes: their reports, their output and their end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from cluster.errors import ConfigError
from cluster.launcher.local import LocalLauncher, LocalProcess
from cluster.launcher.protocol import ProcessSpec
from cluster.process.startup import ProcessReport, StartupFailed, StartupProgress, StartupReady
from tests.cluster.child_programs import (
    IGNORES_SIGTERM,
    KILLED,
    REPORTS_FAILURE,
    SERVES_UNTIL_SIGTERM,
    STARTS_ANOTHER,
    program,
)


@pytest.fixture
async def launched(tmp_path: Path) -> AsyncIterator[list[LocalProcess]]:
    """Processes to be ended after the test, whatever happened in it."""
    processes: list[LocalProcess] = []
    yield processes
    for process in processes:
        process.stop(at_once=True)
        await process.wait()


async def start(
    spec: ProcessSpec, launched: list[LocalProcess], log_dir: Path | None = None
) -> LocalProcess:
    launcher = LocalLauncher(log_dir=log_dir, on_warning=lambda name, level, text: None)
    launched.append(await launcher.launch(spec))
    return launched[-1]


async def first_reports(process: LocalProcess, count: int) -> list[ProcessReport]:
    found: list[ProcessReport] = []
    async for report in process.reports():
        found.append(report)
        if len(found) == count:
            break
    return found


async def test_reports_arrive_in_order(launched: list[LocalProcess]) -> None:
    process = await start(program(SERVES_UNTIL_SIGTERM), launched)
    assert await first_reports(process, 2) == [
        StartupProgress("loading", 0.5),
        StartupReady("127.0.0.1:1", {"transport": "loopback"}),
    ]


async def test_reports_end_when_the_process_does(launched: list[LocalProcess]) -> None:
    process = await start(program(REPORTS_FAILURE), launched)
    reports = [report async for report in process.reports()]
    assert reports == [StartupFailed("disk_full", "1 byte free, 2 needed")]
    assert (await process.wait()).in_words == "exit code 1"


async def test_lines_that_are_no_reports_are_skipped(launched: list[LocalProcess]) -> None:
    source = "os.write(int(os.environ['SPLITSERVE_REPORT_FD']), b'hello\\n{}\\n'); ready()"
    process = await start(program(source), launched)
    assert [type(report) for report in [r async for r in process.reports()]] == [StartupReady]


async def test_sigterm_asks_and_the_exit_says_which_signal_it_was(
    launched: list[LocalProcess],
) -> None:
    process = await start(program(SERVES_UNTIL_SIGTERM), launched)
    await first_reports(process, 2)
    process.stop()
    assert (await process.wait()).in_words == "signal SIGTERM"
    process.stop()  # idempotent


async def test_at_once_ends_a_process_that_ignores_sigterm(launched: list[LocalProcess]) -> None:
    process = await start(program(IGNORES_SIGTERM), launched)
    await first_reports(process, 1)
    process.stop()
    process.stop(at_once=True)
    assert (await process.wait()).status == -signal.SIGKILL


async def test_what_a_dead_process_had_started_is_gone_when_wait_returns(
    launched: list[LocalProcess],
) -> None:
    process = await start(program(STARTS_ANOTHER), launched)
    (ready,) = await first_reports(process, 1)
    assert isinstance(ready, StartupReady)
    other = psutil.Process(int(ready.facts["other"]))
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await asyncio.to_thread(other.wait, 10)
    assert not other.is_running()


async def test_a_group_is_killed_once_and_before_its_pid_may_be_anothers(
    launched: list[LocalProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    reaped: list[bool] = []

    def noted(pid: int, signal_number: int) -> None:
        reaped.append(launched[0]._child.returncode is not None)

    monkeypatch.setattr(os, "killpg", noted)
    process = await start(program("print('done')"), launched)
    await process.wait()
    process.stop(at_once=True)
    assert reaped == [False]


async def test_output_goes_to_the_log_and_its_end_is_remembered(
    launched: list[LocalProcess], tmp_path: Path
) -> None:
    source = "print('one', flush=True); print('two', file=sys.stderr); sys.stdout.write('three')"
    process = await start(program(source, name="decode-3"), launched, log_dir=tmp_path)
    ended = await process.wait()
    assert ended.tail == ("one", "two", "three")
    assert ended.log == str(tmp_path / "decode-3.log")
    assert "two" in Path(ended.log).read_text()


async def test_only_warnings_and_errors_of_the_log_are_passed_on(
    launched: list[LocalProcess],
) -> None:
    heard: list[tuple[str, str, str]] = []
    launcher = LocalLauncher(log_dir=None, on_warning=lambda *heard_now: heard.append(heard_now))
    lines = [
        '{"level": "info", "event": "joined"}',
        '{"level": "warning", "event": "slow", "step_ms": 7, "process": "child"}',
        "Traceback or noise of a library",
        '{"broken',
        "[1]",
    ]
    launched.append(await launcher.launch(program(f"print({chr(10).join(lines)!r})")))
    await launched[-1].wait()
    assert heard == [("child", "warning", "slow step_ms=7")]


async def test_a_line_without_an_end_is_cut_and_does_not_fill_the_memory(
    launched: list[LocalProcess],
) -> None:
    process = await start(program("sys.stdout.write('x' * 1_000_000)"), launched)
    ended = await process.wait()
    assert 0 < max(map(len, ended.tail)) <= 2 * 64 * 1024


async def test_a_full_disk_under_the_log_does_not_hold_up_the_child(
    launched: list[LocalProcess], tmp_path: Path
) -> None:
    (tmp_path / "child.log").symlink_to("/dev/full")
    heard: list[str] = []
    launcher = LocalLauncher(log_dir=tmp_path, on_warning=lambda *words: heard.append(words[2]))
    source = "for _ in range(100): print('x' * 30_000, flush=True)\nprint('done')"
    launched.append(await launcher.launch(program(source)))
    ended = await launched[-1].wait()
    assert (ended.status, ended.tail[-1]) == (0, "done")
    (said,) = heard
    assert "cannot be written (No space left on device)" in said


async def test_an_operators_terminal_that_is_gone_does_not_hold_up_the_child(
    launched: list[LocalProcess],
) -> None:
    def gone(*words: str) -> None:
        raise OSError("Input/output error")

    launcher = LocalLauncher(log_dir=None, on_warning=gone)
    line = '{"level": "warning", "event": "slow"}'
    source = f"for _ in range(10_000): print({line!r})\nprint('done')"
    launched.append(await launcher.launch(program(source)))
    ended = await launched[-1].wait()
    assert (ended.status, ended.tail[-1]) == (0, "done")


async def test_a_report_line_of_any_length_does_not_hold_up_the_child(
    launched: list[LocalProcess],
) -> None:
    source = "os.write(int(os.environ['SPLITSERVE_REPORT_FD']), b'x' * 3_000_000 + b'\\n'); ready()"
    process = await start(program(source), launched)
    assert isinstance((await first_reports(process, 1))[0], StartupReady)


async def test_a_child_has_no_stdin_and_no_options_by_variable(
    launched: list[LocalProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLITSERVE_PORT", "9")
    source = "print(sys.stdin.read() == '', 'SPLITSERVE_PORT' in os.environ)"
    process = await start(program(source), launched)
    assert (await process.wait()).tail == ("True False",)


async def test_a_program_that_does_not_exist_is_a_config_error() -> None:
    launcher = LocalLauncher(log_dir=None, on_warning=lambda name, level, text: None)
    with pytest.raises(ConfigError, match="child cannot be started: /no/such/program"):
        await launcher.launch(ProcessSpec(name="child", argv=("/no/such/program",)))


async def test_a_killed_process_is_told_from_one_that_exited(launched: list[LocalProcess]) -> None:
    process = await start(program(KILLED), launched)
    assert (await process.wait()).in_words == "signal SIGKILL"


PARENT = """
import os, signal, subprocess, sys
child = "from cluster.process.parent_death import die_with_parent as d; d(); import signal; "
child += "print('up', flush=True); signal.pause()"
environ = {**os.environ, "SPLITSERVE_PARENT_PID": str(os.getpid())}
running = subprocess.Popen([sys.executable, "-c", child], env=environ, stdout=subprocess.PIPE)
running.stdout.readline()
print(running.pid, flush=True)
signal.pause()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_child_dies_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(timeout=60)
    assert not child.is_running()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_child_whose_parent_is_already_gone_does_not_start() -> None:
    source = "from cluster.process.parent_death import die_with_parent as d; d(); print('alive')"
    environ = {**os.environ, "SPLITSERVE_PARENT_PID": "1"}
    done = subprocess.run(
        [sys.executable, "-c", source], env=environ, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


async def test_a_process_that_ended_before_it_was_asked_to_leaves_nothing_that_it_started(
    launched: list[LocalProcess],
) -> None:
    """Whoever asks it must not reap it: its group could not be ended any more."""
    process = await start(program(STARTS_ANOTHER), launched)
    (ready,) = await first_reports(process, 1)
    assert isinstance(ready, StartupReady)
    other = psutil.Process(int(ready.facts["other"]))
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # the loop has not heard of it
    process.stop()
    await process.wait()
    await asyncio.to_thread(other.wait, 10)
    assert not other.is_running()
