"""`make demo`: a fleet on this machine, two questions, and nothing left behind.

Starts `splitserve serve` (a router, a prefill and a decode worker, each a process) on free ports,
asks through `splitserve chat`, and stops it. Exit code 0 only if all answers came and every process
ended.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import psutil

START_TIMEOUT_S = 1200  # the first start downloads the model and compiles the kernels
STOP_TIMEOUT_S = 60
LESSON = (
    "Here is a note for a geography lesson in a primary school. The children learn the countries "
    "of Europe, their capitals, their rivers and their mountains. Please answer the question in "
    "one short sentence. "
)
QUESTIONS = (
    "What is the capital of France?",
    LESSON + "What is the capital of Italy?",
    LESSON + "What is the capital of Germany?",
)
NUM_WORKERS = 2
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""To this machine itself, whatever proxy the environment names."""


def main() -> int:
    """Runs the demo; the exit code says whether all of it worked."""
    port, grpc_port = _free_port(), _free_port()
    serve = [
        sys.executable,
        "-m",
        "cli",
        "serve",
        "--port",
        str(port),
        "--grpc-port",
        str(grpc_port),
    ]
    print("$ splitserve serve", flush=True)
    fleet = subprocess.Popen(serve)
    try:
        _wait_until_ready(fleet, port, grpc_port)
        codes = [_ask(question, port) for question in QUESTIONS]
        codes.append(_show_status(grpc_port))
    finally:
        left = _stop(fleet)
    if left:
        print(f"left behind: {left}", file=sys.stderr)
    return max([*codes, int(bool(left))])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(fleet: subprocess.Popen[bytes], port: int, grpc_port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if fleet.poll() is not None:
            raise SystemExit(fleet.returncode or 1)
        if _num_ready(grpc_port) == NUM_WORKERS and _is_healthy(port):
            return
        _pause(fleet)
    raise SystemExit(f"not ready within {START_TIMEOUT_S} s")


def _is_healthy(port: int) -> bool:
    try:
        with DIRECT.open(f"http://127.0.0.1:{port}/health", timeout=2):
            return True
    except OSError:
        return False


def _num_ready(grpc_port: int) -> int:
    status = [sys.executable, "-m", "cli", "status", "-o", "json"]
    done = subprocess.run(
        [*status, "--grpc", f"127.0.0.1:{grpc_port}"], capture_output=True, check=False
    )
    members = json.loads(done.stdout)["members"] if done.returncode == 0 else []
    return sum(member["state"] == "ready" for member in members)


def _pause(fleet: subprocess.Popen[bytes]) -> None:
    try:
        fleet.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return


def _ask(question: str, port: int) -> int:
    print(f'\n$ splitserve chat --once "{question}"', flush=True)
    chat = [sys.executable, "-m", "cli", "chat", "--url", f"http://127.0.0.1:{port}"]
    return subprocess.run([*chat, "--max-tokens", "48", "--once", question], check=False).returncode


def _show_status(grpc_port: int) -> int:
    print("\n$ splitserve status --check", flush=True)
    status = [sys.executable, "-m", "cli", "status", "--check", "--grpc", f"127.0.0.1:{grpc_port}"]
    return subprocess.run(status, check=False).returncode


def _stop(fleet: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Ctrl-C, and whoever is still there afterwards."""
    if fleet.poll() is not None:
        return []
    family = psutil.Process(fleet.pid).children(recursive=True)
    fleet.send_signal(signal.SIGINT)
    fleet.wait(timeout=STOP_TIMEOUT_S)
    _, alive = psutil.wait_procs(family, timeout=5)
    return alive


if __name__ == "__main__":
    raise SystemExit(main())
