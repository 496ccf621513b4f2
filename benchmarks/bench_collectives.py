"""Sums over two ranks in shared memory, beside gloo and beside copying the same bytes.

    python -m benchmarks.bench_collectives [--rounds 7] [--direct-bytes N] [--json PATH]

Two processes, each pinned to a core of its own, sum rows of 576 (SmolLM2-135M's width). Shared
memory, gloo and copies take turns within a round. The floor is what no sum through a segment can go
without: both ranks at once copy their rows into it, and then the other's out of it; their waiting
for each other is not counted. A figure is the median of all calls of rank 0, from Python. With
--json a picture of the same name is written as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.collective_rank import Schedule, Times
from benchmarks.report import exit_code, write_json
from benchmarks.sum_sizes import plot_sizes, print_sizes, rows_of, sizes_of
from kernels.cpu.native_sources import NativeUnavailable
from ranks.collectives.native_calls import load_collectives
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, Rendezvous
from ranks.collectives.segment import DIRECT_BYTES, SharedSegment

NUM_RANKS = 2
LIMIT_S = 600.0


def shared_place(direct_bytes: int) -> MeetingPlace:
    """As the conductor opens it, with that switch between the two ways to sum."""
    segment = SharedSegment.create(NUM_RANKS, 1, direct_bytes=direct_bytes)
    found = Rendezvous(
        kind=CollectiveKind.SHARED_MEMORY,
        generation=1,
        world_size=NUM_RANKS,
        segment_fd=segment.fd,
    )
    return MeetingPlace(found, segment, None)


def measured(rounds: int, direct_bytes: int, cores: list[int]) -> Times:
    """Rank 0's times, in microseconds, by name of the work."""
    shared, gloo = shared_place(direct_bytes), MeetingPlace.open(CollectiveKind.GLOO, NUM_RANKS, 1)
    fd, port = shared.rendezvous.segment_fd, gloo.rendezvous.store_port
    assert fd is not None
    processes = []
    try:
        for rank, core in enumerate(cores):
            schedule = Schedule(rank=rank, core=core, segment_fd=fd, store_port=port, rounds=rounds)
            command = [sys.executable, "-m", "benchmarks.collective_rank", schedule.as_word()]
            processes.append(subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE))
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
        gloo.close()
        shared.close()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank failed: {[process.returncode for process in processes]}")
    times: Times = json.loads(outputs[0].splitlines()[-1])  # gloo prints, too
    return times


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--direct-bytes", type=int, default=DIRECT_BYTES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < NUM_RANKS:
        print("collectives: not measured; two ranks need a core each, and there is one")
        return 0
    try:
        load_collectives()
    except NativeUnavailable as reason:
        print(f"collectives: not measured; ranks of this machine meet over gloo: {reason}")
        return 0
    load = os.getloadavg()[0]
    times = measured(options.rounds, options.direct_bytes, cores[:NUM_RANKS])
    sizes = sizes_of(times)
    print(f"\nall_reduce of rows of 576 over two ranks, microseconds (load {load:.1f} before)")
    print_sizes(sizes)
    rows = rows_of(sizes)
    write_json(options.json, "collectives", rows, {"load_before": load, "rounds": options.rounds})
    if options.json is not None:
        plot_sizes(sizes, options.json.with_suffix(".png"))
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
