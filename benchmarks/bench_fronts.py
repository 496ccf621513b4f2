"""Our router beside others that stand in front of workers: what each adds, and what it costs.

`python -m benchmarks.bench_fronts [--sglang PYTHON] [--requests N] [--json PATH]`. The same
clients, prompts and machine for all; each has a worker without an engine behind it (ours by gRPC,
with the prompt as tokens; the others' by HTTP, a chunk as long as ours). What is added is the
median of a request for one token, less that of the same clients at the HTTP worker itself. Per
core: by the front's own processor time, all of its processes and threads, so that clients and
workers on the same cores count for nobody. A front that is not installed is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.fronts import load
from benchmarks.fronts.contestants import (
    Commands,
    Running,
    direct,
    installed,
    pass_through,
    running,
    sglang_router,
    splitserve,
)
from benchmarks.goals import ROUTER_ADDS_MS, STREAMED_TOKEN_US
from benchmarks.report import Row, exit_code, print_table, write_json

NUM_CLIENTS = (1, 16, 64, 256)
NUM_STREAMS = 64
BUSY = "1 ms"
STEPS_S = {"10 ms": 0.01, BUSY: 0.001}
"""Of the worker: one that leaves time between tokens, and one that comes as fast as it can."""
NUM_OPEN = 1000
"""Streams whose memory is measured, told per ten thousand."""
SLOW_STEP_S = 5.0
SETTLED_BYTES = 1_000_000
"""That a front may still grow by in two seconds before its streams come."""
SETTLE_S = 60.0


@dataclass(slots=True)
class Figures:
    """Of one front."""

    p50_ms: dict[int, float] = field(default_factory=dict)
    """By the number of clients."""
    request_core_us: float = 0.0
    token_core_us: dict[str, float] = field(default_factory=dict)
    """By the worker's step."""
    open_streams_mb: float = 0.0


Make = Callable[[int, int, float], Commands]


def main() -> int:
    """Prints the table; exit code 1 when a goal is missed."""
    arguments = _arguments()
    fronts: dict[str, Make] = {"pass-through": pass_through}
    if installed(arguments.sglang):
        fronts["sglang-router"] = sglang_router(arguments.sglang)
    fronts["splitserve"] = splitserve
    with running(direct) as worker:
        alone = Figures()
        uvloop.run(_ask(worker, alone, arguments.requests))
    alone.token_core_us = _token_cores_us(direct)
    figures = {name: _figures(make, arguments.requests) for name, make in fronts.items()}
    rows = list(_rows(figures, alone))
    print_table("fronts beside each other, workers without an engine", rows)
    write_json(arguments.json, "fronts", rows)
    return exit_code(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sglang", default="", help="a Python that has sglang-router")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _figures(make: Make, num_requests: int) -> Figures:
    found = Figures()
    with running(make) as front:
        uvloop.run(_ask(front, found, num_requests))
    found.token_core_us = _token_cores_us(make)
    with running(make, step_s=SLOW_STEP_S) as front:
        found.open_streams_mb = uvloop.run(_open_streams_mb(front))
    return found


def _token_cores_us(make: Make) -> dict[str, float]:
    """By the worker's step."""
    found = {}
    for name, step_s in STEPS_S.items():
        with running(make, step_s=step_s) as front:
            found[name] = uvloop.run(_token_core_us(front))
    return found


async def _ask(front: Running, found: Figures, num_requests: int) -> None:
    await load.requests(front.port, 16, 200)  # warm
    for num_clients in NUM_CLIENTS:
        before_s = front.cpu_s()
        took = await load.requests(front.port, num_clients, max(num_requests, 4 * num_clients))
        core_us = (front.cpu_s() - before_s) * 1e6 / len(took.each_ms)
        found.p50_ms[num_clients] = statistics.median(took.each_ms)
        if num_clients == NUM_STREAMS:
            found.request_core_us = core_us


async def _token_core_us(front: Running, num_tokens: int = 600) -> float:
    """The median of three rounds, once nothing of it is starting any more: a process that does
    takes as much as ten thousand tokens."""
    await load.streams(front.port, NUM_STREAMS, 20)
    await _settled_bytes(front)
    rounds = []
    for _ in range(3):
        before_s = front.cpu_s()
        await load.streams(front.port, NUM_STREAMS, num_tokens)
        rounds.append((front.cpu_s() - before_s) * 1e6 / (NUM_STREAMS * num_tokens))
    return statistics.median(rounds)


async def _open_streams_mb(front: Running) -> float:
    """Each has begun, and waits for its next token."""
    await load.requests(front.port, 16, 200)
    before_bytes = await _settled_bytes(front)
    clients = await load.connect(front.port, NUM_OPEN)
    ends = [client.ask(number, 1000, stream=True) for number, client in enumerate(clients)]
    await asyncio.gather(*(client.began for client in clients))
    grown_bytes = front.memory_bytes() - before_bytes
    for client in clients:
        client.close()
    await asyncio.gather(*ends, return_exceptions=True)
    return grown_bytes / NUM_OPEN * 10_000 / 1e6


async def _settled_bytes(front: Running) -> int:
    """Once nothing of it is starting any more: a process that does is as large as 600 streams."""
    before_bytes, num_bytes = 0, front.memory_bytes()
    deadline_s = time.monotonic() + SETTLE_S
    while abs(num_bytes - before_bytes) > SETTLED_BYTES and time.monotonic() < deadline_s:
        await asyncio.sleep(2.0)
        before_bytes, num_bytes = num_bytes, front.memory_bytes()
    return num_bytes


def _rows(figures: dict[str, Figures], alone: Figures) -> Iterator[Row]:
    """What the HTTP worker itself takes for a token is the sends alone: no front takes less."""
    for step, core_us in alone.token_core_us.items():
        yield Row(f"no front: a token of 64 streams, steps of {step}", core_us, "core-us")
    for name, one in figures.items():
        is_ours = name == "splitserve"
        for count in NUM_CLIENTS:
            added_ms = one.p50_ms[count] - alone.p50_ms[count]
            goal_ms = ROUTER_ADDS_MS if is_ours and count == 1 else None
            yield Row(f"{name}: added to a request, {count} clients", added_ms, "ms", goal=goal_ms)
        yield Row(f"{name}: a request, 64 clients", one.request_core_us, "core-us")
        for step, core_us in one.token_core_us.items():
            goal_us = STREAMED_TOKEN_US if is_ours and step == BUSY else None
            title = f"{name}: a token of 64 streams, steps of {step}"
            yield Row(title, core_us, "core-us", goal=goal_us)
        yield Row(f"{name}: 10k open streams", one.open_streams_mb, "MB")


if __name__ == "__main__":
    sys.exit(main())
