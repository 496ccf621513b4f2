"""Steps of a mixture of experts on two ranks in shared memory: all rows at all ranks, or exchanged.

    python -m benchmarks.bench_experts [--rounds 5] [--json PATH]

Two processes, each pinned to a core of its own, with one thread each. The model has random weights:
4 layers of 32 experts, 4 of them for each row, and a shared one, hidden size 1024, in bfloat16.
Both exchanges take turns within a round. There is no floor: what counts is which of them is
shorter, as `--expert-exchange auto` has it (engine/contract/expert_exchange.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.bench_collectives import LIMIT_S, NUM_RANKS, shared_place
from benchmarks.expert_rank import EXCHANGES, STEPS, Schedule, Times
from benchmarks.report import Row, median_row, print_table, write_json
from kernels.cpu.native_library import NativeUnavailable
from ranks.collectives.native_calls import load_collectives
from ranks.collectives.segment import DIRECT_BYTES


def measured(rounds: int, cores: list[int]) -> Times:
    """Rank 0's times."""
    place = shared_place(DIRECT_BYTES)
    fd = place.rendezvous.segment_fd
    assert fd is not None
    processes = []
    for rank, core in enumerate(cores):
        schedule = Schedule(rank=rank, core=core, segment_fd=fd, rounds=rounds)
        command = [sys.executable, "-m", "benchmarks.expert_rank", schedule.as_word()]
        processes.append(subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE))
    outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    place.close()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank failed: {[process.returncode for process in processes]}")
    times: Times = json.loads(outputs[0].splitlines()[-1])
    return times


def rows_of(times: Times) -> list[Row]:
    """Of each step, by each exchange."""
    return [
        median_row(f"{step}, {exchange}", times[f"{exchange}/{step}"], "ms")
        for step in STEPS
        for exchange in EXCHANGES
    ]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < NUM_RANKS:
        print("experts: not measured; two ranks need a core each, and there is one")
        return 0
    try:
        load_collectives()
    except NativeUnavailable as reason:
        print(f"experts: not measured; there is no shared memory between ranks here: {reason}")
        return 0
    load = os.getloadavg()[0]
    rows = rows_of(measured(options.rounds, cores[:NUM_RANKS]))
    print_table(f"steps of a mixture on two ranks, load {load:.1f} before", rows)
    write_json(options.json, "experts", rows, {"load_before": load, "rounds": options.rounds})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
