"""One colocated worker as a client sees it: a real fleet, driven over HTTP streaming.

    python -m benchmarks.bench_worker [--threads 2] [--rounds 9] [--json PATH]

`splitserve serve --prefill 0 --decode 1`, SmolLM2-135M in bfloat16. In every round, one after the
other: a prompt of 512 tokens that nobody has seen, one stream, sixteen streams. A figure is the
median over the rounds, with the smallest and the largest. Floors are measured in this process
between the rounds, while the fleet is idle: see benchmarks/cpu_floor.py and step_shape.py.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import defaultdict
from pathlib import Path

import torch

from benchmarks.cpu_floor import CpuFloor, measure_floor
from benchmarks.goals import DECODE_1_MS, DECODE_16_MS, PREFILL_512_MS
from benchmarks.local_fleet import local_fleet
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from benchmarks.step_shape import StepShape
from benchmarks.stream_client import complete, complete_all, step_ms
from cluster.models.cache.store import ModelStore
from cluster.process.own_cores import available_cores
from kernels.cpu.team import TEAM

PROMPT, CONTEXT, NEW_TOKENS, NUM_STREAMS = 512, 224, 64, 16
"""Decoding goes from `CONTEXT` to `CONTEXT + NEW_TOKENS` tokens: about 256 on the way."""


def fresh_prompt(rng: random.Random, num_tokens: int) -> list[int]:
    """Ordinary tokens that are in no cache."""
    return [rng.randrange(1000, 40_000) for _ in range(num_tokens)]


async def measure(port: int, rounds: int) -> tuple[dict[str, list[float]], CpuFloor]:
    """Milliseconds by name; one round is not counted. The floor is looked for in every round."""
    rng = random.Random()  # fresh in every run: a fleet may be used again
    prompts = [fresh_prompt(rng, CONTEXT) for _ in range(NUM_STREAMS)]
    taken: dict[str, list[float]] = defaultdict(list)
    await one_round(port, prompts, fresh_prompt(rng, PROMPT))
    floor = measure_floor()
    for _ in range(rounds):
        for name, value in (await one_round(port, prompts, fresh_prompt(rng, PROMPT))).items():
            taken[name].append(value)
        floor = floor.best_with(measure_floor(repeats=3))
    return taken, floor


async def one_round(port: int, prompts: list[list[int]], fresh: list[int]) -> dict[str, float]:
    """Each kind of work once. The prompts of the streams are cached after the first round."""
    first = await complete(port, fresh, 1)
    single = await complete(port, prompts[0], NEW_TOKENS)
    together = await complete_all(port, prompts, NEW_TOKENS)
    return {
        "ttft": first.ttft_ms,
        "prefill": first.timing["prefill_ms"],
        "single": step_ms([single]),
        "together": step_ms(together),
    }


def rows_of(taken: dict[str, list[float]], floor: CpuFloor) -> list[Row]:
    """The figures beside floors and goals."""
    config = ModelStore().resolve("smollm2").config

    def least(num_seqs: int, query_len: int, context_len: int) -> float:
        shape = StepShape(num_seqs, query_len, context_len)
        return shape.floor_ms(config, torch.bfloat16, floor)

    prefill, context = least(1, PROMPT, PROMPT), CONTEXT + NEW_TOKENS // 2
    single, together = least(1, 1, context), least(NUM_STREAMS, 1, context)
    return [
        median_row("prefill, 512 tokens", taken["prefill"], "ms", prefill, PREFILL_512_MS),
        median_row("TTFT, 512 tokens", taken["ttft"], "ms", prefill),
        median_row("ITL, 1 stream", taken["single"], "ms", single, DECODE_1_MS),
        median_row("step, 16 streams", taken["together"], "ms", together, DECODE_16_MS),
    ]


def main() -> int:
    """Exit code 1 when a goal is missed that this machine allows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    TEAM.resize(options.threads)
    flags = ["--prefill", "0", "--decode", "1", "--dtype", "bfloat16", "--weights", "full"]
    with local_fleet(*flags, "--num-threads", str(options.threads), num_workers=1) as port:
        taken, floor = asyncio.run(measure(port, options.rounds))
    rows = rows_of(taken, floor)
    print_table(f"one colocated worker, bfloat16, {options.threads} threads; {floor}", rows)
    write_json(options.json, "worker", rows)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
