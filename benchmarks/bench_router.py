"""What the router adds to a request: from the client's send until the worker has the request.

`python -m benchmarks.bench_router [--requests N] [--json PATH]`. A real router process, a real HTTP
client on one kept-alive connection, a worker without an engine (benchmarks/mock_worker.py), no
queue. Beside it the floor: half of two bare TCP round trips on loopback (HTTP in, gRPC out).
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


def _measure(url: str, num_requests: int, arrivals: dict[str, int]) -> list[float]:
    body = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 1}
    sent: dict[str, int] = {}
    with httpx.Client(base_url=url, timeout=10) as client:
        _wait_until_ready(client)
        for index in range(num_requests + 20):
            request_id = f"bench-{index}"
            # a different first word each time: no prefix is known to the router
            content = json.dumps({**body, "prompt": f"{index} {PROMPT}"}).encode()
            headers = {"X-Request-Id": request_id, "Content-Type": "application/json"}
            sent[request_id] = time.monotonic_ns()
            client.post("/v1/completions", content=content, headers=headers).raise_for_status()
    warm = [f"bench-{index}" for index in range(20, num_requests + 20)]
    return [(arrivals[name] - sent[name]) / 1e6 for name in warm]


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


def _rows(took_ms: list[float]) -> list[Row]:
    floor = _loopback_round_trip_ms()
    return [
        Row(
            "HTTP in to worker, p50", percentile(took_ms, 50), "ms", floor=floor, goal=ROUTER_P50_MS
        ),
        Row("HTTP in to worker, p99", percentile(took_ms, 99), "ms", floor=floor),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
