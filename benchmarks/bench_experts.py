"""A mixture of experts on two ranks in shared memory: steps in every way to share it, and KV.

    python -m benchmarks.bench_experts [--rounds 5] [--json PATH]

Two processes, each pinned to a core of its own, with one thread each. The model has random weights:
4 layers of 32 experts, 4 of them for each row, and a shared one, hidden size 1024, in bfloat16.
All rows at all ranks (gather), rows exchanged (all-to-all), or each rank with sequences of its own
(`--data-parallel-attention`), by turns within a round. There is no floor: what counts is which of
them is shorter. What a token's KV takes at both ranks together is counted, not measured: its floor
is one copy, of this model and of one with DeepSeek-V2's latents.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.bench_collectives import LIMIT_S, NUM_RANKS, shared_place
from benchmarks.expert_rank import CONFIG, STEPS, WAYS, Schedule, Times
from benchmarks.report import Row, median_row, print_table, write_json
from cluster.models.card import DecoderConfig, LatentConfig
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, RowSharing
from kernels.cpu.native_library import NativeUnavailable
from ranks.collectives.native_calls import load_collectives
from ranks.collectives.segment import DIRECT_BYTES

LATENT = LatentConfig(query_rank=None, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)


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
    """Of each step, in each way."""
    return [
        median_row(f"{step}, {way}", times[f"{way}/{step}"], "ms") for step in STEPS for way in WAYS
    ]


def kv_rows() -> list[Row]:
    """Of a token, the memory at both ranks: what a pool holds is its size over that."""
    latents = replace(CONFIG, num_kv_heads=CONFIG.num_heads, latent=LATENT)
    return [
        _kv_row(f"KV of a token, {name}, {way}", config, WAYS[way])
        for name, config in (("4 heads", CONFIG), ("latents", latents))
        for way in ("gather", "own sequences")
    ]


def _kv_row(name: str, config: DecoderConfig, way: RowSharing) -> Row:
    split = ModelSplit(config=config, rank=Rank(0, NUM_RANKS), row_sharing=way)
    own, whole = (
        shape.token_bytes(dtype="bfloat16", kv="auto")
        for shape in (split.kv_shape, config.kv_shape)
    )
    num_holders = 1 if way is RowSharing.OWN else NUM_RANKS
    return Row(name, num_holders * own / 1024, "KiB", floor=whole / 1024)


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
    rows = [*rows_of(measured(options.rounds, cores[:NUM_RANKS])), *kv_rows()]
    print_table(f"steps of a mixture on two ranks, load {load:.1f} before", rows)
    write_json(options.json, "experts", rows, {"load_before": load, "rounds": options.rounds})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
