"""What the router adds to a request: from the client's send until the worker has the request.

`python -m benchmarks.bench_router [--requests N] [--json PATH]`. A real router process, a real HTTP
client on one kept-alive connection, a worker without an engine (benchmarks/mock_worker.py), no
queue. A text and a short chat in turn. Beside them the floor: half of two bare TCP round trips on
loopback (HTTP in, gRPC out).
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from benchmarks.goals import ROUTER_P50_MS
from benchmarks.report import Row, exit_code, percentile, print_table, write_json

PROMPT = "The quick brown fox jumps over the lazy dog. " * 20
PATHS = {"text": "/v1/completions", "chat": "/v1/chat/completions"}


def main() -> int:
    """Prints the table; exit code 1 when the goal is missed."""
    arguments = _arguments()
    port, grpc_port = _free_port(), _free_port()
    router = [sys.executable, "-m", "cli", "router", "--port", str(port)]
    router += ["--grpc-port", str(grpc_port)]
    worker = [sys.executable, "-m", "benchmarks.mock_worker", f"127.0.0.1:{grpc_port}"]
    children = [
        subprocess.Popen(router, stderr=subprocess.DEVNULL),
        subprocess.Popen(worker, stdout=subprocess.PIPE, text=True),
    ]
    arrivals: dict[str, int] = {}
    reader = threading.Thread(target=_collect, args=(children[1].stdout, arrivals), daemon=True)
    reader.start()
    try:
        took_ms = _measure(f"http://127.0.0.1:{port}", arguments.requests, arrivals)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(timeout=30)
    rows = _rows(took_ms)
    print_table("router overhead: HTTP in to worker, no queue", rows)
    write_json(arguments.json, "router", rows)
    return exit_code(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _collect(lines, arrivals: dict[str, int]) -> None:
    for line in lines:
        if line.startswith("bench-"):
            request_id, arrived_ns = line.split()
            # the router has added its own suffix to the client's id
            arrivals[request_id.rpartition("-")[0]] = int(arrived_ns)


def _measure(url: str, num_requests: int, arrivals: dict[str, int]) -> dict[str, list[float]]:
    """Milliseconds of each request, by its kind."""
    sent: dict[str, int] = {}
    with httpx.Client(base_url=url, timeout=10) as client:
        _wait_until_ready(client)
        for index in range(num_requests + 20):
            for kind, path in PATHS.items():
                request_id = f"bench-{kind}-{index}"
                headers = {"X-Request-Id": request_id, "Content-Type": "application/json"}
                content = json.dumps(_body(kind, index)).encode()
                sent[request_id] = time.monotonic_ns()
                client.post(path, content=content, headers=headers).raise_for_status()
    warm = range(20, num_requests + 20)
    names = {kind: [f"bench-{kind}-{index}" for index in warm] for kind in PATHS}
    return {kind: [(arrivals[name] - sent[name]) / 1e6 for name in names[kind]] for kind in PATHS}


def _body(kind: str, index: int) -> dict[str, object]:
    """A different first word each time: no prefix is known to the router."""
    text = f"{index} {PROMPT}"
    asked = {"prompt": text} if kind == "text" else {"messages": [_says(text)]}
    return {"model": "smollm2", "max_tokens": 1, **asked}


def _says(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _wait_until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("the router was not ready within 60 s")


def _loopback_round_trip_ms(num: int = 2000) -> float:
    """Median of a one-byte round trip over TCP on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def echo() -> None:
            while data := far.recv(64):
                far.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        took = []
        for _ in range(num):
            start = time.perf_counter()
            near.sendall(b"x")
            near.recv(1)
            took.append((time.perf_counter() - start) * 1e3)
        near.close()
    return percentile(took, 50)


def _rows(took_ms: dict[str, list[float]]) -> list[Row]:
    floor = _loopback_round_trip_ms()
    rows = []
    for kind, name in {"text": "HTTP in to worker", "chat": "the same, a short chat"}.items():
        goal = ROUTER_P50_MS if kind == "text" else None
        p50, p99 = (percentile(took_ms[kind], percent) for percent in (50, 99))
        rows.append(Row(f"{name}, p50", p50, "ms", floor=floor, goal=goal))
        rows.append(Row(f"{name}, p99", p99, "ms", floor=floor))
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
