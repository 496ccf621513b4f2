"""Whole decoder steps on this CPU beside what its memory and its arithmetic allow.

    python -m benchmarks.bench_decoder [--model smollm2] [--threads 2] [--json PATH]

Floors: the weights and the KV read once from memory, or the multiply-adds at the rate of the best
large matrix product, whichever takes longer. Both rates are measured in the same run. Steps are
interleaved, and the best and the median of all rounds are shown. Goals are 1.4 times the floor for
one sequence and for a prompt, 2 times for 16 sequences.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.cpu_floor import CpuFloor, measure_floor
from benchmarks.report import Row, print_table, write_json
from cluster.models.card import DecoderConfig
from cluster.models.store import ModelStore
from engine.decoder import Decoder
from engine.kv_pool import KvLayout, KvPool
from engine.ragged_batch import RaggedBatch

BLOCK_SIZE = 16
CONTEXT = 256
LONG_CONTEXT = 2048
POOL_BLOCKS = 1024


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of step; all sequences are alike."""

    name: str
    num_seqs: int
    query_len: int
    context_len: int
    goal: float
    """In multiples of the floor."""

    def batch(self) -> RaggedBatch:
        """Sequences in blocks that are scattered over the pool; one row of logits each."""
        blocks_each = -(-self.context_len // BLOCK_SIZE)
        shuffled = torch.randperm(POOL_BLOCKS, generator=torch.Generator().manual_seed(0))
        tables = shuffled[torch.arange(self.num_seqs * blocks_each) % POOL_BLOCKS]
        tables = tables.view(self.num_seqs, blocks_each)
        positions = torch.arange(self.context_len - self.query_len, self.context_len)
        slots = tables[:, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
        ends = torch.arange(self.num_seqs + 1) * self.query_len
        return RaggedBatch(
            token_ids=torch.arange(1000, 1000 + self.num_seqs * self.query_len),
            positions=positions.repeat(self.num_seqs),
            slots=slots.flatten(),
            query_starts=ends.int(),
            context_lens=torch.full((self.num_seqs,), self.context_len, dtype=torch.int32),
            block_tables=tables.int(),
            logit_rows=ends[1:] - 1,
            num_decodes=self.num_seqs if self.query_len == 1 else 0,
            max_query_len=self.query_len,
            max_context_len=self.context_len,
        )

    def floor_ms(self, decoder: Decoder, config: DecoderConfig, floor: CpuFloor) -> float:
        """The slower of reading weights and KV once, and multiplying."""
        itemsize = decoder.dtype.itemsize
        head_params = config.vocab_size * config.hidden_size
        layer_params = decoder.num_bytes // itemsize - head_params
        if not config.tie_word_embeddings:
            layer_params -= head_params
        num_tokens = self.num_seqs * self.query_len
        seen = self.context_len - (self.query_len - 1) / 2
        attention = 4.0 * num_tokens * seen * config.num_heads * config.head_dim * config.num_layers
        flops = 2.0 * (num_tokens * layer_params + self.num_seqs * head_params) + attention
        kv = KvLayout.of(config, self.context_len, decoder.dtype).block_bytes * self.num_seqs
        read = (layer_params + head_params) * itemsize + kv
        return max(floor.read_ms(read), floor.compute_ms(flops))


STEPS = (
    Step("decode, 1 sequence", 1, 1, CONTEXT, 1.4),
    Step("decode, 1 sequence, 2k context", 1, 1, LONG_CONTEXT, 1.6),
    Step("decode, 4 sequences", 4, 1, CONTEXT, 1.6),
    Step("decode, 16 sequences", 16, 1, CONTEXT, 2.0),
    Step("prefill, 512 tokens", 1, 512, 512, 1.4),
    Step("prefill, 80 tokens after 2000", 1, 80, 2080, 1.6),
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


def rows_of(times: dict[str, list[float]], floors: dict[str, float]) -> list[Row]:
    """Best and median of each step."""
    rows = []
    for step in STEPS:
        taken, floor = times[step.name], floors[step.name]
        rows.append(Row(step.name, min(taken), "ms", floor, floor * step.goal))
        rows.append(Row(f"{step.name}: median", statistics.median(taken), "ms", floor))
    return rows


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    started = time.perf_counter()
    decoder = Decoder.load(ModelStore().resolve(options.model), torch.bfloat16, "cpu")
    load_ms = (time.perf_counter() - started) * 1e3
    layout = KvLayout.of(decoder.config, BLOCK_SIZE, torch.bfloat16)
    pool = KvPool(layout, POOL_BLOCKS, "cpu")
    batches = {step.name: step.batch() for step in STEPS}
    run = {name: _forward(decoder, batch, pool) for name, batch in batches.items()}
    before = measure_floor()
    times = measure(run, options.rounds)
    after = measure_floor()
    floor = CpuFloor(
        max(before.read_bytes_per_s, after.read_bytes_per_s),
        max(before.bf16_flops_per_s, after.bf16_flops_per_s),
    )
    rows = rows_of(times, {s.name: s.floor_ms(decoder, decoder.config, floor) for s in STEPS})
    rows.append(Row("load, from file to packed weights", load_ms, "ms"))
    print_table(
        f"{options.model}, bfloat16, kernels {decoder.kernel_set}, {options.threads} threads; "
        f"memory {floor.read_bytes_per_s / 1e9:.1f} GB/s, "
        f"matrix product {floor.bf16_flops_per_s / 1e9:.0f} GFLOP/s",
        rows,
    )
    write_json(options.json, "decoder", rows)
    return int(any(row.verdict == "MISSED" for row in rows))


def _forward(decoder: Decoder, batch: RaggedBatch, pool: KvPool) -> Callable[[], object]:
    return lambda: decoder.forward(batch, pool)


if __name__ == "__main__":
    raise SystemExit(main())
