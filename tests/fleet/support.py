"""A whole fleet of real processes, as `splitserve serve` starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil

from cluster.join_token import operators_token
from cluster.rpc import open_channel
from tests.fleet.asked_status import asked_status
from tests.free_ports import free_port
from tests.patience import PATIENCE

START_TIMEOUT_S = 300.0


def wait_for(condition: Callable[[], Any], *, timeout_s: float, what: str) -> Any:
    """Polls until `condition` is truthy and returns its value; fails at the deadline, which is
    later by PATIENCE than the time that it should take."""
    deadline = time.monotonic() + timeout_s * PATIENCE
    pause = 0.02
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        select_pause(pause)
        pause = min(0.2, pause * 1.5)
    raise AssertionError(f"{what}: not within {timeout_s * PATIENCE:g} s")


def select_pause(seconds: float) -> None:
    """Yields the processor between two looks at a condition."""
    import select

    select.select([], [], [], seconds)


@dataclass
class Fleet:
    """A running `splitserve serve` and how to reach it."""

    process: subprocess.Popen[bytes]
    url: str
    grpc_address: str
    log_path: Path

    def status(self, *, check: bool = True) -> dict[str, Any]:
        """What `splitserve status --check` says of router and workers."""
        return asked_status(self.grpc_address, check=check)

    def is_healthy(self) -> bool:
        """True when the router says that requests can be answered."""
        try:
            return httpx.get(f"{self.url}/health", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def processes(self) -> list[psutil.Process]:
        """Everything that lives under the supervisor."""
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def running_fleet(log_dir: Path, *arguments: str, num_workers: int) -> Iterator[Fleet]:
    """Starts a fleet on free ports, waits until all workers are members, stops it, and checks that
    nothing is left behind."""
    port, grpc_port = free_port(), free_port()
    log_dir.mkdir(parents=True, exist_ok=True)
    log_path = log_dir / "serve.log"
    command = [sys.executable, "-m", "cli", "serve", *arguments]
    command += ["--port", str(port), "--grpc-port", str(grpc_port), "--log-dir", str(log_dir)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=clean_environment())
    fleet = Fleet(process, f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", log_path)
    try:
        wait_for(
            lambda: all_ready(fleet, num_workers), timeout_s=START_TIMEOUT_S, what=log_path.name
        )
        yield fleet
    except BaseException:
        print(log_path.read_text()[-4000:])
        raise
    finally:
        stop(fleet)


def all_ready(fleet: Fleet, num_workers: int) -> bool:
    """True when the router answers and knows that many ready workers."""
    assert fleet.process.poll() is None, "the fleet ended while starting"
    if not fleet.is_healthy():
        return False
    members = fleet.status(check=False)["members"]
    return sum(member["state"] == "ready" for member in members) >= num_workers


def stop(fleet: Fleet) -> None:
    """SIGTERM, then the promise: every process of the fleet is gone."""
    left = fleet.processes() if fleet.process.poll() is None else []
    if fleet.process.poll() is None:
        fleet.process.send_signal(signal.SIGTERM)
    try:
        fleet.process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        fleet.process.kill()
        raise
    _, alive = psutil.wait_procs(left, timeout=10)
    for process in alive:
        process.kill()
    assert not alive, f"left behind: {alive}"


def fleet_channel(address: str) -> grpc.aio.Channel:
    """To a process of a fleet that `serve` has started here, as one of its own opens it."""
    return open_channel(address, token=operators_token())


def clean_environment() -> dict[str, str]:
    """The caller's environment without settings that would change the fleet."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPLITSERVE_")}
    if "SPLITSERVE_HOME" in os.environ:
        kept["SPLITSERVE_HOME"] = os.environ["SPLITSERVE_HOME"]
    return kept
