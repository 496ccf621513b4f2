"""Three routers with one Redis: do weights and limits hold over all of them?

    python -m benchmarks.bench_shares [--seconds N] [--json PATH]

Four decode workers that keep a pace and compute nothing, before three routers that share a store;
a third of each tenant's requests goes to each router. First three tenants of weights 1, 2 and 4 ask
for twice what the workers can do: how far each tenant's part of what is served in every ten seconds
is from its weight's. Then one key with a limit of requests a minute asks four times as often as it
may: how much more or less is let in than its rate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from benchmarks.bench_overload import ANSWER_TOKENS, CAPACITY_PER_S, NUM_WORKERS, Load
from benchmarks.local_fleet import free_port
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from benchmarks.router_fleet import Redis, Router, await_all, end
from cluster.join_token import JOIN_TOKEN
from router.tenants.api_key import KeyTerms, new_key
from router.tenants.key_file import changed_keys
from router.tenants.limits import REQUEST_BURST_S

RESULTS = Path(__file__).parent / "results" / "shares.json"
NUM_ROUTERS = 3
WEIGHTS = {"one": 1.0, "two": 2.0, "four": 4.0}
WINDOW_S = 10.0
RATE_PER_S = 10.0
SHARE_POINTS, LIMIT_PERCENT = 5.0, 2.0
OVERLOAD = 2.0
SETTLE_S = 8.0
"""Until the line is full, and all know how fast workers are."""


class Served:
    """By tenant, the moments at which answers were over."""

    def __init__(self) -> None:
        self.ends_s: dict[str, list[float]] = {name: [] for name in WEIGHTS}

    def parts(self, begin_s: float) -> dict[str, float]:
        """Of what was served in a window, by tenant."""
        counts = {
            name: sum(begin_s <= end_s < begin_s + WINDOW_S for end_s in ends_s)
            for name, ends_s in self.ends_s.items()
        }
        total = max(1, sum(counts.values()))
        return {name: count / total for name, count in counts.items()}


async def shares(loads: Sequence[Load], keys: dict[str, str], seconds: float) -> list[Row]:
    """In percent of its weight's part, the farthest tenant of each window."""
    served, began_s = Served(), time.monotonic()
    per_s = OVERLOAD * CAPACITY_PER_S / len(WEIGHTS) / len(loads)

    async def ask(name: str, load: Load) -> None:
        answers = await load.ask_at_random(keys[name], per_s, SETTLE_S + seconds)
        served.ends_s[name] += [each.came_s + each.took_s for each in answers if each.status == 200]

    await asyncio.gather(*(ask(name, load) for name in WEIGHTS for load in loads))
    whole = sum(WEIGHTS.values())
    farthest: dict[str, list[float]] = {name: [] for name in WEIGHTS}
    for at in range(int(seconds / WINDOW_S)):
        parts = served.parts(began_s + SETTLE_S + at * WINDOW_S)
        for name, weight in WEIGHTS.items():
            farthest[name].append(100 * abs(parts[name] / (weight / whole) - 1))
    num_served = sum(map(len, served.ends_s.values()))
    print(f"  shares: {num_served} served, off by window {farthest}", flush=True)
    return [
        median_row(
            f"tenant of weight {WEIGHTS[name]:g}, off its share", off, "%", goal=SHARE_POINTS
        )
        for name, off in farthest.items()
    ]


async def limits(loads: Sequence[Load], key: str, seconds: float) -> list[Row]:
    """What is let in after the burst, beside the rate."""
    per_s = 4 * RATE_PER_S / len(loads)
    lead_s = 2 * REQUEST_BURST_S
    came = await asyncio.gather(
        *(load.ask_at_random(key, per_s, lead_s + seconds) for load in loads)
    )
    answers = [answer for some in came for answer in some]
    first_s = min(each.came_s for each in answers) + lead_s
    counted = [each for each in answers if first_s <= each.came_s < first_s + seconds]
    let_in = sum(each.status == 200 for each in counted)
    others = sum(each.status not in (200, 429) for each in counted)
    off = 100 * abs(let_in / (RATE_PER_S * seconds) - 1)
    print(f"  limits: {let_in} let in of {len(counted)} in {seconds:g} s", flush=True)
    return [
        Row(f"limit of {RATE_PER_S:g}/s at three routers, off by", off, "%", goal=LIMIT_PERCENT),
        Row("answers that are neither 200 nor 429", others, "requests", goal=0),
    ]


@contextmanager
def fleet(keys: Path) -> Iterator[list[int]]:
    """The HTTP ports of the routers, which know each other and all workers."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        redis = Redis(folder, free_port())
        stack.callback(end, redis.start())
        routers = []
        for at in range(NUM_ROUTERS):
            port, grpc_port = free_port(), free_port()
            flags = ("--port", str(port), "--grpc-port", str(grpc_port), "--store", redis.url)
            command = ("cli", "router", *flags, "--api-keys", str(keys))
            routers.append(Router(port, grpc_port, _run(stack, folder, f"router-{at}", *command)))
        named = ",".join(f"127.0.0.1:{router.grpc_port}" for router in routers)
        for at in range(NUM_WORKERS):
            _run(stack, folder, f"worker-{at}", "benchmarks.paced_worker", named, f"paced-{at}")
        await_all(
            [lambda each=each: each.is_ready(NUM_ROUTERS, NUM_WORKERS) for each in routers], folder
        )
        yield [router.port for router in routers]


def _run(stack: ExitStack, folder: Path, name: str, *module: str) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([sys.executable, "-m", *module], stdout=log, stderr=log)
    stack.callback(end, process)
    return process


def _keys(path: Path) -> dict[str, str]:
    terms = {name: KeyTerms(weight=weight) for name, weight in WEIGHTS.items()}
    terms["limited"] = KeyTerms(requests_per_minute=60 * RATE_PER_S)
    made = {}
    with changed_keys(path) as keys:
        for name, each in terms.items():
            record, made[name] = new_key(name, each)
            keys[record.id] = record
    return made


async def measure(ports: Sequence[int], keys: dict[str, str], seconds: float) -> list[Row]:
    """Both, one after the other."""
    loads = [Load(port, Random(port)) for port in ports]
    return [
        *await shares(loads, keys, seconds),
        *await limits(loads, keys["limited"], seconds),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    os.environ.setdefault(
        JOIN_TOKEN, secrets.token_hex(16)
    )  # of all of them, and for their metrics
    with tempfile.TemporaryDirectory() as place:
        keys = _keys(path := Path(place) / "keys.json")
        with fleet(path) as ports:
            rows = asyncio.run(measure(ports, keys, options.seconds))
    print_table(f"three routers: answers of {ANSWER_TOKENS} tokens, shares and limits", rows)
    write_json(options.json, "shares", rows, {"seconds": options.seconds})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
