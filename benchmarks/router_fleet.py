"""Several routers before the same workers, and a Redis that they share: a process each."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.local_fleet import START_TIMEOUT_S, STOP_TIMEOUT_S, free_port
from cluster.join_token import JOIN_TOKEN

ENGINE = ("--dtype", "float32", "--max-context-tokens", "2048", "--kv-memory-bytes", "300MiB")
LOOK_S = 0.3


@dataclass(frozen=True, slots=True)
class Redis:
    """At a port of its own; keeps nothing on disk."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """For --store."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> subprocess.Popen[bytes]:
        """Raises RuntimeError where it is not installed."""
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not installed")
        terms = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir")
        return subprocess.Popen([program, *terms, str(self.folder)], stdout=subprocess.DEVNULL)


@dataclass(slots=True)
class Router:
    """One of them."""

    port: int
    grpc_port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Of its HTTP port."""
        return f"http://127.0.0.1:{self.port}"

    def metric(self, name: str) -> float:
        """The sum over its labels; for the join token, where routers have keys. Raises
        httpx.HTTPError."""
        shown = {"Authorization": f"Bearer {os.environ.get(JOIN_TOKEN, '')}"}
        lines = httpx.get(f"{self.url}/metrics", timeout=5, headers=shown).text.splitlines()
        values = [line.split()[-1] for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(map(float, values))

    def is_ready(self, num_routers: int, num_workers: int) -> bool:
        """It is healthy, knows all routers, and has all workers."""
        try:
            if httpx.get(f"{self.url}/health", timeout=5).status_code != 200:
                return False
            has_routers = self.metric("splitserve_router_alive") == num_routers
            return has_routers and self.metric("splitserve_members") == num_workers
        except httpx.HTTPError:
            return False


@dataclass(slots=True)
class RouterFleet:
    """What runs."""

    routers: list[Router]
    redis: Redis
    redis_process: subprocess.Popen[bytes]


@contextmanager
def router_fleet(num_routers: int, num_prefill: int, num_decode: int) -> Iterator[RouterFleet]:
    """Yields once every router knows all routers and workers. All processes are stopped at the end.

    Raises RuntimeError where that does not come about.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes end with us
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        redis = Redis(Path(folder), free_port())
        fleet = RouterFleet([], redis, redis.start())
        stack.callback(lambda: end(fleet.redis_process))
        for number in range(num_routers):
            fleet.routers.append(_started_router(stack, Path(folder), redis, number))
        named = ",".join(f"127.0.0.1:{router.grpc_port}" for router in fleet.routers)
        for role, count in (("prefill", num_prefill), ("decode", num_decode)):
            for number in range(count):
                flags = ("--router", named, "--worker-id", f"{role}-{number}", *ENGINE)
                _run(stack, Path(folder), f"{role}-{number}", f"{role}-worker", *flags)
        num_workers = num_prefill + num_decode
        ready = [lambda r=r: r.is_ready(num_routers, num_workers) for r in fleet.routers]
        await_all(ready, Path(folder))
        yield fleet


def _started_router(stack: ExitStack, folder: Path, redis: Redis, number: int) -> Router:
    port, grpc_port = free_port(), free_port()
    ports = ("--port", str(port), "--grpc-port", str(grpc_port))
    process = _run(stack, folder, f"router-{number}", "router", *ports, "--store", redis.url)
    return Router(port, grpc_port, process)


def _run(stack: ExitStack, folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([sys.executable, "-m", "cli", *arguments], stdout=log, stderr=log)
    stack.callback(end, process)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks it to, and kills it where it does not; one that has ended is none the worse."""
    process.send_signal(signal.SIGCONT)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    process.kill()
    process.wait()


def await_all(conditions: list[Callable[[], bool]], folder: Path) -> None:
    """Raises RuntimeError with the end of each log where they do not come true in time."""
    end_s = time.monotonic() + START_TIMEOUT_S
    while not all(is_so() for is_so in conditions):
        if time.monotonic() > end_s:
            tails = [f"{log.name}: {log.read_text()[-500:]}" for log in folder.glob("*.log")]
            raise RuntimeError("the fleet did not start:\n" + "\n".join(tails))
        time.sleep(LOOK_S)
