"""A `splitserve serve` of one's own for the time of a benchmark, on free ports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from cluster.options import without_options

START_TIMEOUT_S = 300.0  # the first start downloads the model
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class LocalFleet:
    """Where a running fleet is reached, and the process that holds it."""

    port: int
    grpc_port: int
    supervisor_pid: int
    log_dir: Path
    """One NAME.log per process; gone with the fleet."""

    @property
    def grpc_address(self) -> str:
        """For `splitserve status --grpc`."""
        return f"127.0.0.1:{self.grpc_port}"


@contextmanager
def local_fleet(*flags: str, num_workers: int, tree: Path | None = None) -> Iterator[int]:
    """The HTTP port of a `whole_fleet`."""
    with whole_fleet(*flags, num_workers=num_workers, tree=tree) as fleet:
        yield fleet.port


@contextmanager
def whole_fleet(*flags: str, num_workers: int, tree: Path | None = None) -> Iterator[LocalFleet]:
    """Yields once all workers are members; stops every process at the end.

    `tree`: another checkout of this project whose code the fleet runs; None: this one.
    Raises RuntimeError with the end of the log when the fleet does not start.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the fleet ends with us
    port, grpc_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "serve.log").open("w+") as log:
        command = [sys.executable, "-m", "cli", "serve", *flags, "--log-dir", folder]
        command += ["--port", str(port), "--grpc-port", str(grpc_port)]
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=tree, env=_environment(tree)
        )
        try:
            if not _is_ready(process, port, grpc_port, num_workers):
                raise RuntimeError(f"the fleet did not start: {Path(log.name).read_text()[-2000:]}")
            yield LocalFleet(port, grpc_port, process.pid, Path(folder))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=STOP_TIMEOUT_S)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(tree: Path | None) -> dict[str, str]:
    kept = without_options(os.environ)
    return kept if tree is None else kept | {"PYTHONPATH": str(tree)}


def _is_ready(
    process: subprocess.Popen[bytes], port: int, grpc_port: int, num_workers: int
) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if _num_ready(grpc_port) >= num_workers and _is_healthy(port):
            return True
        time.sleep(0.3)
    return False


def _is_healthy(port: int) -> bool:
    """True when the router says that requests can be answered."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def _num_ready(grpc_port: int) -> int:
    status = [sys.executable, "-m", "cli", "status", "-o", "json"]
    done = subprocess.run(
        [*status, "--grpc", f"127.0.0.1:{grpc_port}"], capture_output=True, check=False
    )
    members = json.loads(done.stdout)["members"] if done.returncode == 0 else []
    return sum(member["state"] == "ready" for member in members)
