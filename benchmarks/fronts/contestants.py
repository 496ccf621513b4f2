"""The fronts that are compared, each with its worker: how they are started, what they use."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

START_S = 120.0
Commands = tuple[list[str], list[str]]
"""The worker's and the front's; no front: the worker alone."""


@dataclass(frozen=True, slots=True)
class Running:
    """A front that answers at `port`."""

    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        """Of a core, by all of its processes, since they began."""
        return sum(_cpu_s(one.pid) for one in self._all())

    def memory_bytes(self) -> int:
        """What would be free without it; shared pages count in parts."""
        return sum(one.memory_full_info().pss for one in self._all())

    def _all(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


def _cpu_s(pid: int) -> float:
    """In nanoseconds as the scheduler counts them: `times` has ticks of 10 ms."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks) / 1e9


def splitserve(port: int, worker_port: int, step_s: float) -> Commands:
    """Our router; `worker_port` is where its workers join."""
    worker = [sys.executable, "-m", "benchmarks.mock_worker", f"127.0.0.1:{worker_port}"]
    router = [sys.executable, "-m", "cli", "router", "--port", str(port)]
    return [*worker, str(step_s)], [*router, "--grpc-port", str(worker_port)]


def pass_through(port: int, worker_port: int, step_s: float) -> Commands:
    """The floor of all that are written in Python."""
    front = [sys.executable, "-m", "benchmarks.fronts.pass_through", str(port), str(worker_port)]
    return _http_worker(worker_port, step_s), front


def direct(port: int, worker_port: int, step_s: float) -> Commands:
    """No front."""
    return _http_worker(port, step_s), []


def sglang_router(python: str) -> Callable[[int, int, float], Commands]:
    """That of the wheel, with its own defaults; `python` has it installed."""

    def commands(port: int, worker_port: int, step_s: float) -> Commands:
        front = [python, "-m", "sglang_router.launch_router", "--port", str(port)]
        front += ["--host", "127.0.0.1", "--log-level", "error", "--disable-retries"]
        front += ["--worker-urls", f"http://127.0.0.1:{worker_port}"]
        front += ["--prometheus-port", str(free_port())]
        return _http_worker(worker_port, step_s), front

    return commands


def _http_worker(port: int, step_s: float) -> list[str]:
    return [sys.executable, "-m", "benchmarks.fronts.http_worker", str(port), str(step_s)]


@contextlib.contextmanager
def running(
    make: Callable[[int, int, float], Commands], *, step_s: float = 0.01
) -> Iterator[Running]:
    """Until the block ends. Raises SystemExit where it does not answer."""
    port, worker_port = free_port(), free_port()
    children = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in make(port, worker_port, step_s)
        if command
    ]
    try:
        _wait_until_ready(port)
        yield Running(port, psutil.Process(children[-1].pid))
    finally:
        for child in reversed(children):
            child.terminate()
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=30)
            child.kill()


def _wait_until_ready(port: int) -> None:
    """A request is answered: a front may be up before it has a worker."""
    body = b'{"model":"smollm2","prompt":"a","max_tokens":1}'
    url = f"http://127.0.0.1:{port}/v1/completions"
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=5).read()
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing answered at port {port} within {START_S:g} s")


def free_port() -> int:
    """One that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def installed(python: str) -> bool:
    """Whether sglang-router can be run."""
    if not os.access(python, os.X_OK):
        return False
    asked = [python, "-c", "import sglang_router"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0
