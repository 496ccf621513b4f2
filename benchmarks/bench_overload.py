"""What a router does when there is too much: a flood beside a quiet tenant, and three times what
the fleet can do.

`python -m benchmarks.bench_overload [--seconds N] [--json PATH]`. A real router with API keys that
reserves what workers can hold, four workers that take their time
(benchmarks/paced_worker.py), clients over HTTP on connections of their own, at random moments.
Capacity is what the workers' pace allows. Everything in real time; what is kept
says how long the overload lasted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx

from benchmarks.local_fleet import free_port
from benchmarks.paced_worker import TOKEN_MS
from benchmarks.report import Row, exit_code, percentile, print_table, write_json
from router.tenants.api_key import new_key
from router.tenants.key_file import changed_keys

NUM_WORKERS = 4
PROMPT_TOKENS = 200
ANSWER_TOKENS = 6
CAPACITY_PER_S = NUM_WORKERS * 1000 / (PROMPT_TOKENS * TOKEN_MS)
QUIET_PER_S = 4.0
NUM_ROUNDS = 4
"""Quiet and flood take turns: a busy neighbour hits both."""
DEADLINE_S = 2.0
MEAN_STAY_S = 0.25
"""Of a request at its worker: what began in the last moments ends after them."""
START_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one request."""

    status: int
    came_s: float
    took_s: float
    """Until it was over."""
    ttft_s: float | None


class Load:
    """Asks a router, and notes what it said."""

    def __init__(self, port: int, chance: Random) -> None:
        self._port = port
        self._chance = chance

    async def ask_at_random(self, key: str, per_s: float, seconds: float) -> list[Answer]:
        """As strangers do, at no pace."""
        tasks: list[asyncio.Task[Answer]] = []
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            tasks.append(asyncio.create_task(self._ask(key)))
            await asyncio.sleep(self._chance.expovariate(per_s))
        return await asyncio.gather(*tasks)

    async def _ask(self, key: str) -> Answer:
        sent_s, ttft_s = time.monotonic(), None
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(self._request(key))
            status = int((await reader.readline()).split()[1])
            while line := await reader.readline():
                if status == 200 and line.startswith(b"data: ") and ttft_s is None:
                    ttft_s = time.monotonic() - sent_s
            return Answer(status, sent_s, time.monotonic() - sent_s, ttft_s)
        finally:
            writer.close()

    def _request(self, key: str) -> bytes:
        """A prompt of its own, and a salt of its own: who forges salts gains nothing."""
        body = {
            "model": "smollm2",
            "prompt": [self._chance.randrange(40_000) for _ in range(PROMPT_TOKENS)],
            "max_tokens": ANSWER_TOKENS,
            "stream": True,
            "cache_salt": str(self._chance.randrange(1000)),
        }
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: r\r\nConnection: close\r\n"
            f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            f"X-Request-Timeout: {DEADLINE_S}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


def main() -> int:
    """Prints the table; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.json"
        keys = {tenant: _new_key(path, tenant) for tenant in ("victim", "flood")}
        with _fleet(path) as port:
            rows = asyncio.run(_measure(Load(port, Random(1)), keys, arguments.seconds))
    title = f"overload: {NUM_WORKERS} workers, {CAPACITY_PER_S:g} requests/s of capacity"
    print_table(title, rows)
    write_json(arguments.json, "overload", rows, {"overload_seconds": arguments.seconds})
    return exit_code(rows)


async def _measure(load: Load, keys: dict[str, str], seconds: float) -> list[Row]:
    await load.ask_at_random(keys["victim"], CAPACITY_PER_S / 2, 5.0)  # until rates are known
    quiet, flooded = list[Answer](), list[Answer]()
    for _ in range(NUM_ROUNDS):
        quiet += await load.ask_at_random(keys["victim"], QUIET_PER_S, seconds / 2 / NUM_ROUNDS)
        flooded += await _beside_a_flood(load, keys, seconds / 2 / NUM_ROUNDS)
    answers = await load.ask_at_random(keys["flood"], 3 * CAPACITY_PER_S, seconds)
    return [*_flood_rows(quiet, flooded), *_overload_rows(answers, seconds)]


async def _beside_a_flood(load: Load, keys: dict[str, str], seconds: float) -> list[Answer]:
    """The victim's."""
    victims, _ = await asyncio.gather(
        load.ask_at_random(keys["victim"], QUIET_PER_S, seconds),
        load.ask_at_random(keys["flood"], 10 * QUIET_PER_S, seconds),
    )
    return victims


def _flood_rows(quiet: list[Answer], flooded: list[Answer]) -> list[Row]:
    before_ms, with_ms = (
        percentile([1000 * each.ttft_s for each in found if each.ttft_s is not None], 95)
        for found in (quiet, flooded)
    )
    return [
        Row("quiet tenant alone, TTFT p95", before_ms, "ms", floor=PROMPT_TOKENS * TOKEN_MS),
        Row("beside a flood of 10:1, TTFT p95", with_ms, "ms", goal=1.5 * before_ms),
        Row("of its requests refused", sum(each.status != 200 for each in flooded), "", goal=0),
    ]


def _overload_rows(answers: list[Answer], seconds: float) -> list[Row]:
    statuses = Counter(each.status for each in answers)
    print(f"3 times the capacity: {len(answers)} requests, by status {dict(statuses)}")
    refused_ms = [1000 * each.took_s for each in answers if each.status == 429]
    ttft_ms = [1000 * each.ttft_s for each in answers if each.ttft_s is not None]
    end_s = min(each.came_s for each in answers) + seconds
    served = [each for each in answers if each.status == 200]
    num_in_time = sum(each.came_s + each.took_s <= end_s for each in served)
    lost = 1 - num_in_time / (CAPACITY_PER_S * (seconds - MEAN_STAY_S))
    others = len(answers) - statuses[200] - statuses[429]
    return [
        Row("at 3 times the capacity, capacity lost", 100 * lost, "%", floor=0.0, goal=10.0),
        Row("TTFT p95 of those served", percentile(ttft_ms, 95), "ms", goal=1000 * DEADLINE_S),
        Row("refusals, p50", percentile(refused_ms, 50), "ms", goal=20.0),
        Row("refusals, p99", percentile(refused_ms, 99), "ms", goal=20.0),
        Row("answers that are neither 200 nor 429", others, "", goal=0),
    ]


def _new_key(path: Path, tenant: str) -> str:
    record, key = new_key(tenant)
    with changed_keys(path) as keys:
        keys[record.id] = record
    return key


@contextmanager
def _fleet(keys: Path) -> Iterator[int]:
    """The HTTP port of a router with its workers."""
    port, grpc_port = free_port(), free_port()
    router = ["-m", "cli", "router", "--port", str(port), "--grpc-port", str(grpc_port)]
    commands = [[*router, "--api-keys", str(keys)]]
    for at in range(NUM_WORKERS):
        worker = ["-m", "benchmarks.paced_worker", f"127.0.0.1:{grpc_port}", f"paced-{at}"]
        commands.append(worker)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    children = [subprocess.Popen([sys.executable, *each], **quiet) for each in commands]
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}")
        yield port
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(timeout=30)


def _wait_until_ready(url: str) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"the router was not ready within {START_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    raise SystemExit(main())
