"""What arriving prompts do to a running stream, by deployment and threads.

    python -m benchmarks.bench_interference [--prefill 1] [--decode 1] [--threads 0 1] [--rounds 5]

In every round: a fresh prompt of 512 tokens while nothing else runs, a stream while nothing else
runs, and a stream while two fresh prompts of 2000 tokens arrive, one after the other. Figures are
medians over the rounds of TTFT, of the stream's median gap, and of its p99 gap. With several counts
of threads there is one fleet for each, and they take turns within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import defaultdict
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from benchmarks.bench_worker import fresh_prompt
from benchmarks.goals import QUIET_ITL_FACTOR
from benchmarks.local_fleet import local_fleet
from benchmarks.report import Row, exit_code, median_row, percentile, print_table, write_json
from benchmarks.stream_client import Stream, complete

PROMPT, LONG_PROMPT, CONTEXT, NEW_TOKENS = 512, 2000, 128, 160
NUM_LONG_PROMPTS = 2


async def measure(ports: list[int], rounds: int) -> list[dict[str, list[float]]]:
    """Milliseconds by name for each fleet; one round is not counted."""
    rng = random.Random()
    taken: list[dict[str, list[float]]] = [defaultdict(list) for _ in ports]
    for number in range(rounds + 1):
        for port, values in zip(ports, taken, strict=True):
            for name, value in (await one_round(port, rng)).items():
                if number:
                    values[name].append(value)
    return taken


async def one_round(port: int, rng: random.Random) -> dict[str, float]:
    """The three situations, one after the other."""
    idle = await complete(port, fresh_prompt(rng, PROMPT), 1)
    quiet = await complete(port, fresh_prompt(rng, CONTEXT), NEW_TOKENS)
    disturbed, long_prompts = await disturbed_stream(port, rng)
    return {
        "ttft": idle.ttft_ms,
        "quiet": percentile(quiet.gaps_ms(), 50),
        "quiet p99": percentile(quiet.gaps_ms(), 99),
        "disturbed": percentile(disturbed, 50),
        "disturbed p99": percentile(disturbed, 99),
        "long ttft": percentile([stream.ttft_ms for stream in long_prompts], 50),
    }


async def disturbed_stream(port: int, rng: random.Random) -> tuple[list[float], list[Stream]]:
    """Gaps of a stream while long prompts were on their way, and those prompts."""
    stream = asyncio.create_task(complete(port, fresh_prompt(rng, CONTEXT), NEW_TOKENS))
    long_prompts = [
        await complete(port, fresh_prompt(rng, LONG_PROMPT), 1) for _ in range(NUM_LONG_PROMPTS)
    ]
    end_s = long_prompts[-1].arrivals_s[-1]
    return (await stream).gaps_ms(long_prompts[0].sent_s, end_s), long_prompts


def rows_of(taken: dict[str, list[float]]) -> list[Row]:
    """The figures; the quiet stream is the floor of the disturbed one."""
    quiet, quiet_p99 = percentile(taken["quiet"], 50), percentile(taken["quiet p99"], 50)
    goal = QUIET_ITL_FACTOR * quiet_p99
    return [
        median_row("TTFT, 512 tokens, idle", taken["ttft"], "ms"),
        median_row("TTFT, 2000 tokens, beside a stream", taken["long ttft"], "ms"),
        median_row("ITL p50, idle", taken["quiet"], "ms"),
        median_row("ITL p99, idle", taken["quiet p99"], "ms"),
        median_row("ITL p50, prompts arrive", taken["disturbed"], "ms", quiet),
        median_row("ITL p99, prompts arrive", taken["disturbed p99"], "ms", quiet_p99, goal),
    ]


def main() -> int:
    """Exit code 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefill", type=int, default=1)
    parser.add_argument("--decode", type=int, default=1)
    parser.add_argument("--threads", type=int, nargs="+", default=[0], help="0: serve's choice")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ExitStack() as fleets:
        ports = [fleets.enter_context(_fleet(options, threads)) for threads in options.threads]
        taken = asyncio.run(measure(ports, options.rounds))
    rows: list[Row] = []
    for threads, values in zip(options.threads, taken, strict=True):
        rows += (own := rows_of(values))
        title = f"{options.prefill} prefill, {options.decode} decode, {threads or 'auto'} threads"
        print_table(title, own)
    write_json(options.json, "interference", rows)
    return exit_code(rows)


def _fleet(options: argparse.Namespace, threads: int) -> AbstractContextManager[int]:
    flags = ["--prefill", str(options.prefill), "--decode", str(options.decode)]
    flags += [] if not threads else ["--num-threads", str(threads)]
    return local_fleet(*flags, num_workers=options.prefill + options.decode)


if __name__ == "__main__":
    raise SystemExit(main())
