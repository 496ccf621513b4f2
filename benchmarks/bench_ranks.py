"""One replica on two ranks beside the same on one, in one run.

    python -m benchmarks.bench_ranks [--model smollm2] [--rounds 25] [--json PATH]

Kinds of steps take turns within a round, each as a few steps in a row of which the second half
counts, as decodes follow each other: a single rank with one thread, and with two; two ranks with
one thread each; and what each of these computes with its collectives left out, by itself and with
the other one at once.

SmolLM2 has three KV heads, so that one of two ranks has two thirds of its attention, and the other
waits for it in every layer. Each step of the group is therefore told apart by what its ranks say of
it themselves (`benchmarks/group_steps.py`):

    imbalance   what the slower rank computed longer than the faster one, in this very step
    overhead    the step beyond what its slower rank computed: the plan, the sums, the gathered
                logits, and, told as well, what that rank waits for the other one, which is the
                slower one in single layers

The ranks' own parts at once, without any collective, stand beside that: what a rank computes slower
because of what the other has left in the caches shows there. Peaks of memory are of processes of
their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from msgspec import structs

from benchmarks.bench_decoder import POOL_BLOCKS, STEPS, Step
from benchmarks.group_steps import GroupSteps
from benchmarks.own_parts import NUM_RANKS, SideBySide, own_part
from benchmarks.plan_latency import plan_latencies_us
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from engine.contract.spec import EngineSpec
from engine.model.load_phases import silent
from engine.offline.replica import OfflineSetup, offline_spec
from engine.process.load_ranks import load_group
from engine.process.memory_habits import keep_freed_memory
from engine.runner.model_runner import ModelRunner, Replica
from engine.runner.ranks.loaded_facts import peak_bytes
from engine.runner.replica import load_replica
from kernels.cpu.team import TEAM
from ranks.processes import ProcessSpawner

RANK_MODULE = "decode_worker.rank_process"
PLAN_BYTES = 4096
"""Of a step of 16 decodes at 256 tokens: 2.6 KB."""
NUM_PLANS = 1000
IN_A_ROW = {"decode": 8, "prefill": 1}
"""Steps that count, after as many that do not."""
PLAN_GOAL_US, OVERHEAD_GOAL_MS = 50.0, 0.3
IMBALANCE, OVERHEAD = "imbalance of the computing", "over the slower one's computing"
WAITED = "of that, its own waits for the other"
NAMES = ("decode, 1 sequence", "decode, 16 sequences", "prefill, 512 tokens")
MEASURED = tuple(step for step in STEPS if step.name in NAMES)


def spec_of(model: str, num_ranks: int, num_threads: int) -> EngineSpec:
    """As served, with that many threads in all."""
    setup = OfflineSetup(model=model, num_threads=num_threads)
    options = replace(setup.options, tensor_parallel_size=num_ranks, max_context_tokens=2048)
    return structs.replace(offline_spec(setup), options=options)


def load(spec: EngineSpec, closers: contextlib.ExitStack) -> Replica:
    """Alone, or as the conductor of a group."""
    if spec.options.tensor_parallel_size == 1:
        return load_replica(spec, silent)
    replica = load_group(spec, silent, ProcessSpawner(RANK_MODULE))
    assert replica.others is not None
    closers.callback(replica.others.close)
    return replica


Work = Callable[[], dict[str, float]]
"""A step; milliseconds by what they are of."""


def timed(name: str, runner: ModelRunner | SideBySide, step: Step, num_threads: int = 1) -> Work:
    """Steps by a team of that many threads."""
    batch = step.batch()

    def run() -> dict[str, float]:
        TEAM.resize(num_threads)
        began = time.perf_counter()
        runner.forward(batch)
        return {f"{step.name}: {name}": (time.perf_counter() - began) * 1e3}

    return run


def told_apart(replica: Replica, step: Step) -> Work:
    """Steps of a group."""
    steps, batch = GroupSteps(replica), step.batch()

    def run() -> dict[str, float]:
        TEAM.resize(1)
        took = steps.take(batch)
        own = {f"computing of rank {rank}": own_ms for rank, own_ms in enumerate(took.own_ms)}
        figures = {"2 ranks, 1 thread each": took.step_ms, **own}
        figures |= {IMBALANCE: took.imbalance_ms, OVERHEAD: took.overhead_ms}
        figures |= {WAITED: took.slowest_waited_ms}
        return {f"{step.name}: {name}": value for name, value in figures.items()}

    return run


def step_works(model: str, closers: contextlib.ExitStack) -> list[Work]:
    """In the order in which they take turns."""
    shared = load(spec_of(model, NUM_RANKS, NUM_RANKS), closers)
    alone = load(spec_of(model, 1, 1), closers)
    parts = [own_part(spec_of(model, 1, 1), index) for index in range(NUM_RANKS)]
    beside = SideBySide(parts, closers)
    torch.set_num_threads(1)
    assert min(len(shared.kv), len(alone.kv)) >= POOL_BLOCKS
    works: list[Work] = []
    for step in MEASURED:
        works += [
            timed("1 rank, 1 thread", alone.runner, step),
            timed("1 rank, 2 threads", alone.runner, step, 2),
            told_apart(shared, step),
            *(timed(f"rank {at} by itself", part, step) for at, part in enumerate(parts)),
            timed("both ranks' own parts", beside, step),
        ]
    return works


def measure_in_rows(works: Sequence[Work], rounds: int) -> dict[str, list[float]]:
    """Of every figure the medians of its rows: a row of each work in every round."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for work in works:
            for name, values in figures_of_a_row(work).items():
                times.setdefault(name, []).append(statistics.median(values))
    return times


def figures_of_a_row(work: Work) -> dict[str, list[float]]:
    """Of the steps that count."""
    first = work()
    count = IN_A_ROW[next(iter(first)).split(",")[0]]
    row = [first, *(work() for _ in range(2 * count - 1))][count:]
    return {name: [step[name] for step in row] for name in first}


def step_row(name: str, values: Sequence[float]) -> Row:
    """Of all rounds."""
    has_goal = name.startswith("decode") and name.endswith(OVERHEAD)
    return median_row(name, values, "ms", None, OVERHEAD_GOAL_MS if has_goal else None)


def peaks_of(model: str, num_ranks: int) -> list[int]:
    """Of each rank, in processes that do nothing else."""
    command = (sys.executable, "-m", "benchmarks.bench_ranks", "--model", model, "--peaks")
    done = subprocess.run((*command, str(num_ranks)), capture_output=True, check=True, timeout=600)
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_peaks(model: str, num_ranks: int) -> None:
    """What `peaks_of` reads."""
    with contextlib.ExitStack() as closers:
        replica = load(spec_of(model, num_ranks, num_ranks), closers)
        own = peak_bytes(torch.device("cpu"))
        others = [] if replica.others is None else replica.others.facts[1:]
        print(json.dumps([own, *(each.peak_bytes for each in others)]))


def memory_rows(model: str) -> list[Row]:
    """The largest rank of one, two and three."""
    rows = []
    for num_ranks in (1, 2, 3):
        peak = max(peaks_of(model, num_ranks)) / 2**20
        rows.append(Row(f"peak memory of a rank of {num_ranks}, once loaded", peak, "MiB"))
    return rows


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--peaks", type=int, help="print the peaks of so many ranks, and end")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.peaks is not None:
        print_peaks(options.model, options.peaks)
        return 0
    keep_freed_memory()  # as an engine does
    load_before = os.getloadavg()[0]
    plans = plan_latencies_us(PLAN_BYTES, NUM_PLANS)
    rows = [median_row("a plan of 4 KiB to another process", plans, "us", None, PLAN_GOAL_US)]
    rows += memory_rows(options.model)
    with contextlib.ExitStack() as closers:
        times = measure_in_rows(step_works(options.model, closers), options.rounds)
    rows += [step_row(name, values) for name, values in times.items()]
    print_table(f"ranks of {options.model}", rows)
    write_json(options.json, "ranks", rows, {"load_before": load_before, "rounds": options.rounds})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
