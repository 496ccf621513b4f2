"""One replica on two ranks beside the same on one, in one run.

    python -m benchmarks.bench_ranks [--model smollm2] [--rounds 25] [--json PATH]

Kinds of steps take turns within a round, each as a few steps in a row of which the second half
counts, as decodes follow each other: a single rank with one thread, and with two; two ranks with
one thread each; and what each of these computes with its collectives left out, by itself and with
the other one at once. What two ranks take beyond the slower one's own computing is the overhead:
the plan, the sums, the gathered logits, and what the ranks wait for each other. The own computing
is that of both at once, as it is in a step: two cores that read weights share the memory's
bandwidth, which one by itself has alone. SmolLM2 has three KV heads, so that one of two ranks has
two thirds of its attention. Peaks of memory are of processes of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from msgspec import structs

from benchmarks.bench_decoder import POOL_BLOCKS, STEPS, Step
from benchmarks.plan_latency import plan_latencies_us
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from cluster.sharding import Rank
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseTimer, silent
from engine.model.ragged_batch import RaggedBatch
from engine.offline.replica import OfflineSetup, offline_spec
from engine.process.load_ranks import load_group
from engine.runner.model_runner import DecoderRunner, Replica
from engine.runner.portion import Portion
from engine.runner.ranks.loaded_facts import peak_bytes
from engine.runner.replica import load_part, load_replica
from kernels.cpu.team import TEAM
from kernels.tape.collective import NativeCalls
from ranks.collectives.native_calls import VALUE_TYPES, address_of
from ranks.launch import CONDUCTOR
from ranks.processes import ProcessSpawner

RANK_MODULE = "decode_worker.rank_process"
NUM_RANKS = 2
PLAN_BYTES = 4096
"""Of a step of 16 decodes at 256 tokens: 2.6 KB."""
NUM_PLANS = 1000
IN_A_ROW = {"decode": 4, "prefill": 1}
"""Steps that count, after as many that do not."""
PLAN_GOAL_US, OVERHEAD_GOAL_MS = 50.0, 0.3
NAMES = ("decode, 1 sequence", "decode, 16 sequences", "prefill, 512 tokens")
MEASURED = tuple(step for step in STEPS if step.name in NAMES)


class NobodyElse:
    """A NativeCollective that leaves out what the other ranks would do."""

    world_size = NUM_RANKS

    def __init__(self, rank: int) -> None:
        self.rank = rank

    @property
    def native(self) -> NativeCalls:
        """Nothing: the C library's abs(0)."""
        no = address_of(ctypes.CDLL(None).abs)
        return NativeCalls(add=no, sum_tray=no, gather_tray=no, context=0, types=VALUE_TYPES)

    def run_natively(self, program: Callable[[], int]) -> None:
        """As a group would."""
        program()

    def all_reduce(self, rows: torch.Tensor) -> None:
        """Nothing."""

    def all_gather(self, rows: torch.Tensor) -> torch.Tensor:
        """As wide as it would be."""
        return rows.repeat(1, NUM_RANKS)

    def wait_until_landed(self) -> None:
        """It has."""

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """The own columns, where they are."""
        return rows

    def fill(self, rows: torch.Tensor) -> None:
        """Nothing: the own columns are there."""

    def give(self, address: int, num_rows: int, row_bytes: int, root: int) -> None:
        """Nothing: nobody takes them."""


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


def own_part(spec: EngineSpec, index: int) -> DecoderRunner:
    """What one rank of two computes, in this process."""
    portion = Portion(
        rank=Rank(index, NUM_RANKS), collective=NobodyElse(index), logits_at=CONDUCTOR
    )
    part = load_part(spec, PhaseTimer(silent), portion)
    return DecoderRunner(part.decoder, part.pool)


class SideBySide:
    """The ranks' own parts at once, each on a thread: as long as the slower one takes."""

    def __init__(self, parts: list[DecoderRunner], closers: contextlib.ExitStack) -> None:
        *self._others, self._last = parts  # SmolLM2's last rank has most heads: begun at once
        self._threads = closers.enter_context(ThreadPoolExecutor(len(self._others)))

    def forward(self, batch: RaggedBatch) -> None:
        """Of all ranks."""
        begun = [self._threads.submit(part.forward, batch) for part in self._others]
        self._last.forward(batch)
        for each in begun:
            each.result()


def with_threads(num_threads: int, work: Callable[[], object]) -> Callable[[], None]:
    """`work` by a team of that many."""

    def run() -> None:
        TEAM.resize(num_threads)
        work()

    return run


def step_works(model: str, closers: contextlib.ExitStack) -> dict[str, Callable[[], object]]:
    """By name, in the order in which they take turns."""
    shared = load(spec_of(model, NUM_RANKS, NUM_RANKS), closers)
    alone = load(spec_of(model, 1, 1), closers)
    parts = [own_part(spec_of(model, 1, 1), index) for index in range(NUM_RANKS)]
    beside = SideBySide(parts, closers)
    torch.set_num_threads(1)
    assert min(len(shared.kv), len(alone.kv)) >= POOL_BLOCKS
    works: dict[str, Callable[[], object]] = {}
    for step in MEASURED:
        batch = step.batch()

        def of(runner: object, threads: int, batch: object = batch) -> Callable[[], None]:
            return with_threads(threads, lambda: runner.forward(batch))  # type: ignore[attr-defined]

        works[f"{step.name}: 1 rank, 1 thread"] = of(alone.runner, 1)
        works[f"{step.name}: 1 rank, 2 threads"] = of(alone.runner, 2)
        works[f"{step.name}: 2 ranks, 1 thread each"] = of(shared.runner, 1)
        for index, part in enumerate(parts):
            works[f"{step.name}: rank {index} by itself"] = of(part, 1)
        works[f"{step.name}: both ranks' own parts"] = of(beside, 1)
    return works


def measure_in_rows(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a step: the median of those of a row that count, a row of each work in every
    round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            count = IN_A_ROW[name.split(",")[0]]
            row = [timed_ms(work) for _ in range(2 * count)]
            times[name].append(statistics.median(row[count:]))
    return times


def timed_ms(work: Callable[[], object]) -> float:
    """Of one call."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def overhead_row(step: Step, times: dict[str, list[float]]) -> Row:
    """Of two ranks over the slower one's own computing; round by round."""
    own = times[f"{step.name}: both ranks' own parts"]
    shared = times[f"{step.name}: 2 ranks, 1 thread each"]
    beyond = [both - each for both, each in zip(shared, own, strict=True)]
    goal = OVERHEAD_GOAL_MS if step.name.startswith("decode") else None
    return median_row(f"{step.name}: over the own computing", beyond, "ms", None, goal)


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
    load_before = os.getloadavg()[0]
    plans = plan_latencies_us(PLAN_BYTES, NUM_PLANS)
    rows = [median_row("a plan of 4 KiB to another process", plans, "us", None, PLAN_GOAL_US)]
    rows += memory_rows(options.model)
    with contextlib.ExitStack() as closers:
        times = measure_in_rows(step_works(options.model, closers), options.rounds)
    rows += [median_row(name, values, "ms") for name, values in times.items()]
    rows += [overhead_row(step, times) for step in MEASURED]
    print_table(f"ranks of {options.model}", rows)
    write_json(options.json, "ranks", rows, {"load_before": load_before, "rounds": options.rounds})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
