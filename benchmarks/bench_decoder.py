"""Whole decoder steps in bfloat16 on this CPU beside what its memory and arithmetic allow.

    python -m benchmarks.bench_decoder [--model smollm2] [--threads 2] [--torch-threads 1]
                                       [--json PATH]

Floors: the weights and the KV read once from memory, or the multiply-adds at the rate of the best
large matrix product, whichever takes longer. Both rates are measured in the same run. Steps are
interleaved; a figure is the median of all rounds. Goals are the project's where it states one, else
1.6 times the floor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.cpu_floor import CpuFloor, measure_floor
from benchmarks.goals import DECODE_1_MS, DECODE_16_MS, PREFILL_512_MS
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from benchmarks.step_shape import StepShape
from cluster.models.cache.store import ModelStore
from cluster.models.card import DecoderConfig
from cluster.process.own_cores import available_cores
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.process.threads import TORCH_THREADS_BESIDE_THE_TEAM
from kernels.cpu.team import TEAM

BLOCK_SIZE = 16
CONTEXT = 256
LONG_CONTEXT = 2048
POOL_BLOCKS = 1024
FLOOR_FACTOR = 1.6


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of step; all sequences are alike."""

    name: str
    shape: StepShape
    goal_ms: float | None = None
    """The project's; None: `FLOOR_FACTOR` times the floor."""

    def batch(self) -> RaggedBatch:
        """Sequences in blocks that are scattered over the pool; one row of logits each."""
        shape = self.shape
        blocks_each = -(-shape.context_len // BLOCK_SIZE)
        shuffled = torch.randperm(POOL_BLOCKS, generator=torch.Generator().manual_seed(0))
        tables = shuffled[torch.arange(shape.num_seqs * blocks_each) % POOL_BLOCKS]
        tables = tables.view(shape.num_seqs, blocks_each)
        positions = torch.arange(shape.context_len - shape.query_len, shape.context_len)
        slots = tables[:, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
        ends = torch.arange(shape.num_seqs + 1) * shape.query_len
        return RaggedBatch(
            token_ids=torch.arange(1000, 1000 + shape.num_seqs * shape.query_len),
            positions=positions.repeat(shape.num_seqs),
            slots=slots.flatten(),
            query_starts=ends.int(),
            context_lens=torch.full((shape.num_seqs,), shape.context_len, dtype=torch.int32),
            block_tables=tables.int(),
            logit_rows=ends[1:] - 1,
            num_decodes=shape.num_seqs if shape.query_len == 1 else 0,
            max_query_len=shape.query_len,
            max_context_len=shape.context_len,
        )


STEPS = (
    Step("decode, 1 sequence", StepShape(1, 1, CONTEXT), DECODE_1_MS),
    Step("decode, 1 sequence, 2k context", StepShape(1, 1, LONG_CONTEXT)),
    Step("decode, 4 sequences", StepShape(4, 1, CONTEXT)),
    Step("decode, 16 sequences", StepShape(16, 1, CONTEXT), DECODE_16_MS),
    Step("prefill, 512 tokens", StepShape(1, 512, 512), PREFILL_512_MS),
    Step("prefill, 80 tokens after 2000", StepShape(1, 80, 2080)),
)


def measure(run: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds per step, all steps in turn in every round; one round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in run}
    for count in range(rounds + 1):
        for name, work in run.items():
            started = time.perf_counter()
            work()
            if count:
                times[name].append((time.perf_counter() - started) * 1e3)
    return times


def rows_of(times: dict[str, list[float]], config: DecoderConfig, floor: CpuFloor) -> list[Row]:
    """Each step beside its floor and its goal."""
    rows = []
    for step in STEPS:
        least = step.shape.floor_ms(config, torch.bfloat16, floor)
        goal = step.goal_ms if step.goal_ms is not None else least * FLOOR_FACTOR
        rows.append(median_row(step.name, times[step.name], "ms", least, goal))
    return rows


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--torch-threads", type=int, default=TORCH_THREADS_BESIDE_THE_TEAM)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    TEAM.resize(options.threads)
    started = time.perf_counter()
    card = ModelStore().resolve(options.model)
    decoder = Decoder.load(card, torch.bfloat16, "cpu", weights=WeightFormat.FULL)
    load_ms = (time.perf_counter() - started) * 1e3
    layout = KvLayout.of(decoder.config, BLOCK_SIZE, torch.bfloat16)
    pool = KvPool(layout, POOL_BLOCKS, "cpu")
    batches = {step.name: step.batch() for step in STEPS}
    run = {name: _forward(decoder, batch, pool) for name, batch in batches.items()}
    before = measure_floor()
    torch.set_num_threads(options.torch_threads)
    times = measure(run, options.rounds)
    torch.set_num_threads(options.threads)
    floor = before.best_with(measure_floor())
    rows = rows_of(times, decoder.config, floor)
    rows.append(Row("load, from file to packed weights", load_ms, "ms"))
    title = f"{options.model}, bfloat16, kernels {decoder.kernel_set}, {options.threads} threads"
    print_table(f"{title}; {floor}", rows)
    write_json(options.json, "decoder", rows)
    return exit_code(rows)


def _forward(decoder: Decoder, batch: RaggedBatch, pool: KvPool) -> Callable[[], object]:
    return lambda: decoder.forward(batch, pool)


if __name__ == "__main__":
    raise SystemExit(main())
