"""`serve` with tiny programs as the fleet: signals, failures, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cli.serve import check_adapters
from cluster.common_options import ModelOptions
from cluster.config import ServeOptions
from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from tests.cli.run_cli import ROOT, clean_environ, cli
from tests.cluster.child_programs import (
    IGNORES_SIGTERM,
    RAISES,
    REPORTS_FAILURE,
    SERVES_UNTIL_SIGTERM,
    STARTS_ANOTHER,
)
from tests.worker.test_drafter_card import WORDS, model_in

DIES_WITH_PARENT = (
    "from cluster.process.parent_death import die_with_parent; die_with_parent();"
    + SERVES_UNTIL_SIGTERM
)
DEADLINE_S = 30.0
CALM = (f"router={SERVES_UNTIL_SIGTERM}", f"decode-0={SERVES_UNTIL_SIGTERM}")


class Serving:
    """A running fake fleet and what it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def read_until(self, pattern: str) -> re.Match[str]:
        """The first line from here on that matches; fails when the output ends first."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if matched := re.search(pattern, line):
                return matched
        raise AssertionError(f"{pattern!r} was not said:\n" + "\n".join(self.lines))

    def end(self) -> int:
        """Reads the rest and returns the exit code."""
        assert self.process.stderr is not None
        self.lines += self.process.stderr.read().splitlines()
        return self.process.wait(timeout=DEADLINE_S)


@contextmanager
def serving(tmp_path: Path, *programs: str) -> Iterator[Serving]:
    """A fake fleet that is killed at the end, with all that is under it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fake_fleet", str(tmp_path), *programs],
        cwd=ROOT,
        env=clean_environ(),
        stderr=subprocess.PIPE,
        text=True,
    )
    family: list[psutil.Process] = []
    try:
        yield Serving(process)
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
        for member in family:
            if member.is_running():
                member.kill()
        assert process.stderr is not None
        process.stderr.close()


def assert_gone(*pids: int) -> None:
    """Every process ends within the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    for pid in pids:
        try:
            psutil.Process(pid).wait(timeout=max(0.0, deadline - time.monotonic()))
        except psutil.NoSuchProcess:
            continue


def test_a_ready_fleet_is_summed_up_with_what_to_try(tmp_path: Path) -> None:
    with serving(tmp_path, *CALM) as fleet:
        fleet.read_until("ready in .* s: http://127.0.0.1:8000, gRPC 127.0.0.1:50051")
        fleet.read_until("splitserve chat")
        fleet.read_until("splitserve status")
        fleet.read_until("curl http://127.0.0.1:8000/v1/models")
        fleet.read_until(str(tmp_path))
        said = "\n".join(fleet.lines)
    assert re.search(r"router +loading", said)
    assert re.search(r"decode-0 +ready  127.0.0.1:1  pid \d+  transport loopback", said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_every_process(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with serving(tmp_path, *CALM) as fleet:
        pids = [int(fleet.read_until(r"ready .* pid (\d+)")[1]) for _ in range(2)]
        fleet.read_until("logs")
        fleet.process.send_signal(number)
        assert fleet.end() == code
        assert any("stopping router" in line for line in fleet.lines)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_signal_while_starting_stops_at_once(tmp_path: Path) -> None:
    never_ready = "report('progress', phase='loading', fraction=None); signal.pause()"
    with serving(tmp_path, CALM[0], f"decode-0={never_ready}") as fleet:
        fleet.read_until("decode-0 +loading")
        fleet.process.send_signal(signal.SIGINT)
        assert fleet.end() == 130
    assert not any("error" in line for line in fleet.lines)


def test_a_second_signal_kills_what_does_not_want_to_stop(tmp_path: Path) -> None:
    with serving(tmp_path, f"router={IGNORES_SIGTERM}") as fleet:
        pid = int(fleet.read_until(r"pid (\d+)")[1])
        fleet.read_until("logs")
        fleet.process.send_signal(signal.SIGINT)
        fleet.read_until("stopping router")
        fleet.process.send_signal(signal.SIGINT)
        assert fleet.end() == 130
    assert not psutil.pid_exists(pid)


def test_a_failed_start_is_told_last_once_and_with_exit_code_1(tmp_path: Path) -> None:
    with serving(tmp_path, CALM[0], f"decode-0={REPORTS_FAILURE}") as fleet:
        pid = int(fleet.read_until(r"router .* pid (\d+)")[1])
        assert fleet.end() == 1
        said = "decode-0: exit code 1: disk_full: 1 byte free, 2 needed"
        assert fleet.lines[-1] == f"error: {said}"
        assert sum("disk_full" in line for line in fleet.lines) == 1
    assert not psutil.pid_exists(pid)


def test_a_crash_at_start_is_told_with_its_exception_and_its_log(tmp_path: Path) -> None:
    with serving(tmp_path, CALM[0], f"decode-0={RAISES}") as fleet:
        assert fleet.end() == 1
        *_, error, remedy = fleet.lines
    assert error == (
        "error: decode-0: exit code 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"
    )
    assert "-c constraints.txt '.[worker]'" in remedy and str(tmp_path / "decode-0.log") in remedy
    assert not any("Traceback" in line for line in fleet.lines)


def test_a_killed_worker_comes_back_with_one_line_of_cause(tmp_path: Path) -> None:
    with serving(tmp_path, *CALM) as fleet:
        pid = int(fleet.read_until(r"decode-0 +ready .* pid (\d+)")[1])
        fleet.read_until("logs")
        os.kill(pid, signal.SIGKILL)
        fleet.read_until(r"decode-0 ended, signal SIGKILL: .*starting it again in 0.5 s")
        again = int(fleet.read_until(r"decode-0 +ready .* pid (\d+)")[1])
        fleet.process.send_signal(signal.SIGTERM)
        assert fleet.end() == 0
    assert again != pid and not psutil.pid_exists(again)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_nothing_is_left_when_the_supervisor_itself_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, f"router={DIES_WITH_PARENT}") as fleet:
        pid = int(fleet.read_until(r"pid (\d+)")[1])
        fleet.process.kill()
        assert fleet.process.wait(timeout=DEADLINE_S) == -signal.SIGKILL
        assert_gone(pid)
    assert not psutil.pid_exists(pid)


def test_what_a_child_had_started_is_gone_too(tmp_path: Path) -> None:
    with serving(tmp_path, f"router={STARTS_ANOTHER}") as fleet:
        other = int(fleet.read_until(r"other (\d+)")[1])
        fleet.read_until("logs")
        fleet.process.send_signal(signal.SIGTERM)
        assert fleet.end() == 0
        assert_gone(other)
    assert not psutil.pid_exists(other)


def test_a_taken_port_is_told_before_anything_is_downloaded(tmp_path: Path) -> None:
    environ = clean_environ(SPLITSERVE_HOME=str(tmp_path / "home"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = cli("serve", "--port", str(port), environ=environ)
    assert done.returncode == 2
    assert f"127.0.0.1:{port} cannot be listened on" in done.stderr and "--port" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert not (tmp_path / "home" / "models").exists()


def test_a_log_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = cli(
        *("serve", "--port", "0", "--grpc-port", "0", "--log-dir", str(tmp_path / "file" / "x"))
    )
    assert done.returncode == 1 and "--log-dir" in done.stderr


def test_a_model_that_does_not_exist_is_told_before_any_process_starts(tmp_path: Path) -> None:
    words = ["serve", str(tmp_path / "none.gguf"), "--port", "0", "--grpc-port", "0"]
    done = cli(*words, "--log-dir", str(tmp_path))
    assert done.returncode == 2
    assert "none.gguf" in done.stderr and "ready" not in done.stderr


def serve_with(draft: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    home = clean_environ(SPLITSERVE_HOME=str(tmp_path / "home"))
    named = ["serve", *words, "--speculation", str(draft), "--log-dir", str(tmp_path / "logs")]
    return cli(*named, "--port", "0", "--grpc-port", "0", environ=home)


def test_what_is_no_draft_model_is_told_before_anything_is_fetched_or_started(
    tmp_path: Path,
) -> None:
    done = serve_with(tmp_path / "typo", tmp_path)
    assert done.returncode == 2
    assert "speculation is none of auto, off, ngram, heads, and no model" in done.stderr
    assert "typo" in done.stderr and not (tmp_path / "home" / "models").exists()
    assert not list((tmp_path / "logs").glob("*.log"))


@pytest.mark.parametrize("draft", ["nothing", "other tokens"])
def test_a_folder_that_cannot_guess_for_the_model_is_told_before_any_process_starts(
    draft: str, tmp_path: Path
) -> None:
    target, folder = model_in(tmp_path / "target", WORDS), tmp_path / "draft"
    if draft == "nothing":
        folder.mkdir()
    else:
        model_in(folder, WORDS[::-1])
    done = serve_with(folder, tmp_path, str(target))
    assert done.returncode == 2, done.stderr
    assert "speculation by " in done.stderr and "cannot be had" in done.stderr
    assert not list((tmp_path / "logs").glob("*.log"))


def test_a_folder_of_adapters_that_is_not_there_is_said_before_anything_is_started(
    tmp_path: Path,
) -> None:
    def options(launcher: str, folder: Path) -> ServeOptions:
        engine = EngineOptions(adapters=str(folder))
        return ServeOptions(model=ModelOptions(), engine=engine, launcher=launcher)

    check_adapters(options("local", tmp_path))
    check_adapters(options("ray", tmp_path / "there"))
    with pytest.raises(ConfigError, match="there is no folder .*/typo to load adapters from"):
        check_adapters(options("local", tmp_path / "typo"))
