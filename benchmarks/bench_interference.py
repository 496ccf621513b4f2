"""What arriving prompts do to running streams: the tail of their gaps, busy over quiet.

    python -m benchmarks.bench_interference [--before TREE] [--rounds 5] [--only 1+1] [--json PATH]

Two deployments on this machine: one prefill and one decode worker, and one worker that does both.
In every round, for each of them in turn: a prompt of 2048 tokens while nothing else runs; four
streams while nothing else runs; four streams while a fresh prompt of 2000 tokens arrives every
2.5 s. A figure is the median over the rounds. The quiet p99 counts from when all four have begun,
the busy one every gap from the first prompt's arrival to 2.5 s after the last one's.

`--before` names another checkout of this project. Its fleets take turns with ours in every round,
so that both meet the same neighbours; ours are then held to its TTFT as well.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.bench_worker import fresh_prompt
from benchmarks.goals import COLOCATED_ITL_FACTOR, LONG_TTFT_FACTOR, QUIET_ITL_FACTOR
from benchmarks.local_fleet import local_fleet
from benchmarks.report import Row, exit_code, median_row, percentile, print_table, write_json
from benchmarks.stream_client import Stream, complete, complete_all
from cluster.process.background import cancel

ALONE_PROMPT, LONG_PROMPT, CONTEXT = 2048, 2000, 128
NUM_STREAMS, QUIET_TOKENS, MAX_TOKENS = 4, 400, 4000
INTERVAL_S, NUM_LONG_PROMPTS = 2.5, 3


@dataclass(slots=True)
class Deployment:
    """A fleet and what was measured on it: milliseconds by name."""

    name: str
    num_prefill: int
    itl_factor: float
    """The goal: how far the busy p99 may lie above the quiet one."""
    tree: Path | None = None
    port: int = 0
    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def start(self, fleets: ExitStack, flags: Sequence[str]) -> None:
        """Until `fleets` is closed."""
        workers = ["--prefill", str(self.num_prefill), "--decode", "1", *flags]
        fleet = local_fleet(*workers, num_workers=self.num_prefill + 1, tree=self.tree)
        self.port = fleets.enter_context(fleet)


def deployments(before: Path | None, only: str | None) -> list[Deployment]:
    """Ours, each behind its predecessor if there is one."""
    found = []
    for name, num_prefill, factor in (
        ("1+1", 1, QUIET_ITL_FACTOR),
        ("colocated", 0, COLOCATED_ITL_FACTOR),
    ):
        if only in (None, name):
            found += [Deployment(f"{name}, before", num_prefill, factor, before)] if before else []
            found.append(Deployment(name, num_prefill, factor))
    return found


async def measure(fleets: list[Deployment], rounds: int) -> None:
    """One round is not counted."""
    rng = random.Random()
    for number in range(rounds + 1):
        for fleet in fleets:
            for name, value in (await one_round(fleet.port, rng)).items():
                if number:
                    fleet.taken[name].append(value)


async def one_round(port: int, rng: random.Random) -> dict[str, float]:
    """The three situations, one after the other."""
    alone = await complete(port, fresh_prompt(rng, ALONE_PROMPT), 1)
    prompts = [fresh_prompt(rng, CONTEXT) for _ in range(NUM_STREAMS)]
    quiet = gaps_of_all(await complete_all(port, prompts, QUIET_TOKENS))
    busy, long_prompts = await busy_streams(port, rng)
    return {
        "alone": alone.ttft_ms,
        "quiet p50": percentile(quiet, 50),
        "quiet p99": percentile(quiet, 99),
        "busy p50": percentile(busy, 50),
        "busy p99": percentile(busy, 99),
        "long ttft": median(stream.ttft_ms for stream in long_prompts),
    }


def gaps_of_all(streams: Sequence[Stream]) -> list[float]:
    """While all of them ran: what the first waits for the others' prompts is not quiet."""
    start_s = max(stream.arrivals_s[0] for stream in streams)
    return [gap for stream in streams for gap in stream.gaps_ms(start_s)]


async def busy_streams(port: int, rng: random.Random) -> tuple[list[float], list[Stream]]:
    """Gaps of the streams while long prompts arrive, and those prompts."""
    streams = [Stream(sent_s=0.0) for _ in range(NUM_STREAMS)]
    running = [
        asyncio.create_task(complete(port, fresh_prompt(rng, CONTEXT), MAX_TOKENS, into=stream))
        for stream in streams
    ]
    while not all(stream.arrivals_s for stream in streams):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    start_s = time.monotonic()
    arriving = []
    for _ in range(NUM_LONG_PROMPTS):
        arriving.append(asyncio.create_task(complete(port, fresh_prompt(rng, LONG_PROMPT), 1)))
        await asyncio.sleep(INTERVAL_S)
    end_s = time.monotonic()
    long_prompts = await asyncio.gather(*arriving)
    await cancel(running)
    return [gap for stream in streams for gap in stream.gaps_ms(start_s, end_s)], long_prompts


def rows_of(fleet: Deployment, before: Deployment | None) -> list[Row]:
    """The figures of one fleet; goals where they are ours to meet."""
    taken, name = fleet.taken, fleet.name
    quiet, quiet_p99 = median(taken["quiet p50"]), median(taken["quiet p99"])
    limit_ms = fleet.itl_factor * quiet_p99 if fleet.tree is None else None
    ttft_ms = LONG_TTFT_FACTOR * median(before.taken["long ttft"]) if before else None
    return [
        median_row(f"{name}: TTFT, 2048 tokens, alone", taken["alone"], "ms"),
        median_row(f"{name}: ITL p50, quiet", taken["quiet p50"], "ms"),
        median_row(f"{name}: ITL p99, quiet", taken["quiet p99"], "ms"),
        median_row(f"{name}: ITL p50, prompts arrive", taken["busy p50"], "ms", quiet),
        median_row(
            f"{name}: ITL p99, prompts arrive", taken["busy p99"], "ms", quiet_p99, limit_ms
        ),
        median_row(f"{name}: TTFT, 2000 tokens, arriving", taken["long ttft"], "ms", None, ttft_ms),
    ]


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout, for comparison")
    parser.add_argument("--only", choices=("1+1", "colocated"))
    parser.add_argument("--serve-flags", default="", help="more options of `splitserve serve`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    fleets = deployments(options.before, options.only)
    with ExitStack() as running:
        for fleet in fleets:
            fleet.start(running, options.serve_flags.split() if fleet.tree is None else ())
        asyncio.run(measure(fleets, options.rounds))
    by_name = {fleet.name: fleet for fleet in fleets}
    rows: list[Row] = []
    for fleet in fleets:
        rows += rows_of(fleet, by_name.get(f"{fleet.name}, before"))
    print_table("four streams while a prompt of 2000 tokens arrives every 2.5 s", rows)
    write_json(options.json, "interference", rows)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
