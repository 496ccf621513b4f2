"""What requests that are refused do to running streams: sixteen streams while large and hostile
bodies come over every door.

`python -m benchmarks.bench_stalls [--json PATH]`. A real router process; a decode worker without an
engine that gives every stream a token each 10 ms (benchmarks/mock_worker.py), so that all that is
measured is the router's. Of every load: the longest gap between two parts of any stream, beside
five times the 99th percentile of a quiet time just before it, and how late the router's event loop
was at most (its own measure, `splitserve_loop_lag_max_seconds`), beside the quiet time's: on a
machine with other work that is not near zero.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import grpc

from benchmarks.local_fleet import free_port
from benchmarks.report import Row, exit_code, percentile, print_table, write_json
from benchmarks.stream_client import Stream, complete
from cluster.process.background import cancel
from protos import inference_pb2

NUM_STREAMS = 16
QUIET_S = 10.5
"""Longer than the two windows of the loop's own measure."""
LOAD_S = 4.0
MAX_LAG_MS = 50.0
GAP_FACTOR = 5.0
START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """`make` gives what is called by `num_at_once` threads of another process, again and again, and
    returns a status; both take the HTTP and the gRPC port."""

    name: str
    num_at_once: int
    make: Callable[[], Callable[[int, int], str]]


def main() -> int:
    """Prints the table; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    port, grpc_port = free_port(), free_port()
    router = [sys.executable, "-m", "cli", "router", "--port", str(port)]
    router += ["--grpc-port", str(grpc_port)]
    worker = [sys.executable, "-m", "benchmarks.mock_worker", f"127.0.0.1:{grpc_port}"]
    children = [
        subprocess.Popen(router, stderr=subprocess.DEVNULL),
        subprocess.Popen(worker, stdout=subprocess.DEVNULL),
    ]
    try:
        _wait_until_ready(port)
        rows = asyncio.run(_measure(port, grpc_port))
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(timeout=30)
    print_table("16 streams beside bodies that are refused", rows)
    write_json(arguments.json, "stalls", rows)
    return exit_code(rows)


def _texts() -> Callable[[int, int], str]:
    body = _body({"prompt": "The quick brown fox jumps over it. " * 18_000})
    return lambda port, _: _post(port, "/v1/completions", body)


def _chats() -> Callable[[int, int], str]:
    body = _body({"messages": [{"role": "user", "content": ""}] * 4096})
    return lambda port, _: _post(port, "/v1/chat/completions", body)


def _ids() -> Callable[[int, int], str]:
    body = _body({"prompt": [1234] * 1_333_000})
    return lambda port, _: _post(port, "/v1/completions", body)


def _grpc_chat() -> Callable[[int, int], str]:
    message = inference_pb2.ChatMessage(role="user")
    chat = inference_pb2.Chat(messages=[message] * 200_000)
    raw = inference_pb2.GenerateRequest(chat=chat).SerializeToString()
    return lambda _, grpc_port: _call(grpc_port, raw)


LOADS = [
    Load("8 texts of 630 kB", 8, _texts),
    Load("4 chats of 4096 messages", 4, _chats),
    Load("an 8 MB body of ids", 1, _ids),
    Load("a gRPC chat of 200k messages", 1, _grpc_chat),
]


async def _measure(port: int, grpc_port: int) -> list[Row]:
    num_tokens = int((QUIET_S + LOAD_S) * (len(LOADS) + 1) / 0.01)
    streams = [Stream(sent_s=time.monotonic()) for _ in range(NUM_STREAMS)]
    tasks = [
        asyncio.create_task(complete(port, [7, 8, 9], num_tokens, into=item)) for item in streams
    ]
    rows: list[Row] = []
    with ProcessPoolExecutor(1, get_context("spawn")) as sender:
        for index in range(len(LOADS)):
            rows += await _rows(port, grpc_port, index, streams, sender)
    num_ended = sum(task.done() for task in tasks)
    await cancel(tasks)
    return [*rows, Row("streams that ended", num_ended, "streams", goal=0)]


async def _rows(
    port: int, grpc_port: int, index: int, streams: list[Stream], sender: ProcessPoolExecutor
) -> list[Row]:
    load, loop = LOADS[index], asyncio.get_running_loop()
    start_s = time.monotonic()
    await asyncio.sleep(QUIET_S)
    quiet = _gaps_ms(streams, start_s + 1.0)
    quiet_lag_ms = 1e3 * await asyncio.to_thread(_lag_s, port)
    start_s = time.monotonic()
    answers = await loop.run_in_executor(sender, _send, index, port, grpc_port)
    lag_ms = 1e3 * await asyncio.to_thread(_lag_s, port)
    gaps = _gaps_ms(streams, start_s)
    quiet_ms = percentile(quiet, 99)
    said = ", ".join(sorted(set(answers)))
    print(f"{load.name}: {len(answers)} answers, {said}; quiet p99 {quiet_ms:.1f} ms")
    return [
        Row(f"{load.name}: longest gap", max(gaps), "ms", quiet_ms, GAP_FACTOR * quiet_ms),
        Row(f"{load.name}: loop lag", lag_ms, "ms", quiet_lag_ms, MAX_LAG_MS),
    ]


def _send(index: int, port: int, grpc_port: int) -> list[str]:
    """In a process of its own: sending megabytes is not to hold up who measures."""
    load = LOADS[index]
    send, end_s = load.make(), time.monotonic() + LOAD_S
    answers: list[str] = []

    def repeat(_: int) -> None:
        while time.monotonic() < end_s:
            answers.append(send(port, grpc_port))

    with ThreadPoolExecutor(load.num_at_once) as threads:
        list(threads.map(repeat, range(load.num_at_once)))
    return answers


def _gaps_ms(streams: list[Stream], start_s: float) -> list[float]:
    return [gap for stream in streams for gap in stream.gaps_ms(start_s)]


def _body(fields: dict[str, object]) -> bytes:
    return json.dumps({"model": "smollm2", "max_tokens": 1, **fields}).encode()


def _post(port: int, path: str, body: bytes) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return str(response.status)
    finally:
        connection.close()


def _call(port: int, raw: bytes) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        generate = channel.unary_stream("/splitserve.v1.Inference/Generate")
        try:
            list(generate(raw, timeout=120))
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


def _lag_s(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    found = re.search(r"^splitserve_loop_lag_max_seconds (\S+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError("the router does not say how late its event loop is")
    return float(found[1])


def _wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"the router was not ready within {START_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    raise SystemExit(main())
