"""Each CPU kernel beside the time that memory or arithmetic alone would take.

    python -m benchmarks.bench_kernels [--threads 2] [--json PATH]

Shapes are those of SmolLM2-135M. The inputs of memory-bound kernels cycle through more memory than
the caches hold. Both rates are measured in the same run; figures are the best of all repeats.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.cpu_floor import CpuFloor, best_of, measure_floor
from benchmarks.report import Row, print_table, write_json
from benchmarks.sampling_rows import sampling_work
from cluster.home import kernels_folder
from cluster.process.own_cores import available_cores
from kernels.cpu.team import TEAM
from kernels.dispatch.block_digest import block_digest
from kernels.dispatch.kernel_sets import kernels_for
from kernels.gated_mul import GateActivation
from kernels.paged_queries import PagedQueryTables
from kernels.tape.kernel_set import KernelSet

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 576, 1536, 9, 3, 64, 16
NUM_BLOCKS = 1024
COLD_BYTES = 96 << 20  # three times the last-level cache of the test machine
REPEATS = 25
BF16 = torch.bfloat16


def sequences(num_seqs: int, query_len: int, context_len: int) -> PagedQueryTables:
    """Equal sequences, their blocks scattered over the pool."""
    blocks_each = -(-context_len // BLOCK)
    order = torch.randperm(NUM_BLOCKS, generator=torch.Generator().manual_seed(0))
    tables = order[torch.arange(num_seqs * blocks_each) % NUM_BLOCKS].view(num_seqs, -1)
    return PagedQueryTables(
        query_starts=(torch.arange(num_seqs + 1) * query_len).int(),
        context_lens=torch.full((num_seqs,), context_len, dtype=torch.int32),
        block_tables=tables.int(),
        num_decodes=num_seqs if query_len == 1 else 0,
        max_query_len=query_len,
        max_context_len=context_len,
    )


def linear_rows(kernels: KernelSet, floor: CpuFloor) -> list[Row]:
    """The gate and up projection, its weights cold, for 1 to 512 rows."""
    num_bytes = 2 * INNER * HIDDEN * 2
    copies = [torch.randn(2 * INNER, HIDDEN).to(BF16) for _ in range(COLD_BYTES // num_bytes)]
    matrices = itertools.cycle([kernels.pack_linear(weight) for weight in copies])
    rows = []
    for num_rows in (1, 4, 16, 64, 512):
        x = torch.randn(num_rows, HIDDEN).to(BF16)
        least = max(floor.read_ms(num_bytes), floor.compute_ms(num_bytes * num_rows))
        rows.append(row(f"linear, {num_rows} rows", lambda x=x: next(matrices)(x), least))
    return rows


def attention_rows(kernels: KernelSet, floor: CpuFloor) -> list[Row]:
    """One layer of a pool whose other layers push it out of the caches."""
    pool = torch.zeros(NUM_BLOCKS, 8, 2, KV_HEADS, BLOCK, HEAD_DIM, dtype=BF16)
    layers = itertools.cycle(pool.unbind(1))
    rows = []
    for name, shape in {
        "paged_attention, 1 decode at 2048": (1, 1, 2048),
        "paged_attention, 16 decodes at 512": (16, 1, 512),
        "paged_attention, 512 tokens": (1, 512, 512),
        "paged_attention, 128 tokens at 2048": (1, 128, 2048),
    }.items():
        num_seqs, query_len, context_len = shape
        queries = sequences(*shape)
        query = torch.randn(num_seqs * query_len, HEADS, HEAD_DIM).to(BF16)
        seen = context_len - (query_len - 1) / 2
        least = max(
            floor.read_ms(num_seqs * context_len * 2 * KV_HEADS * HEAD_DIM * 2),
            floor.compute_ms(4.0 * num_seqs * query_len * seen * HEADS * HEAD_DIM),
        )
        work = attend(kernels, query, layers, queries)
        rows.append(row(name, work, least))
    return rows


def attend(
    kernels: KernelSet,
    query: torch.Tensor,
    layers: itertools.cycle[torch.Tensor],
    queries: PagedQueryTables,
) -> Callable[[], object]:
    """One call on the next layer."""
    return lambda: kernels.paged_attention(query, next(layers), queries, HEAD_DIM**-0.5)


def elementwise_rows(kernels: KernelSet, floor: CpuFloor) -> list[Row]:
    """512 tokens: caches hold them, so that the floor (memory) can be undercut."""
    tokens = 512
    residual, weight = torch.randn(tokens, HIDDEN), torch.ones(HIDDEN)
    branch = torch.randn(tokens, HIDDEN).to(BF16)
    gate_up = torch.randn(tokens, 2 * INNER).to(BF16)
    qkv = torch.randn(tokens, (HEADS + 2 * KV_HEADS) * HEAD_DIM).to(BF16)
    layer = torch.zeros(NUM_BLOCKS, 2, KV_HEADS, BLOCK, HEAD_DIM, dtype=BF16)
    cos_sin = torch.ones(tokens, 2, HEAD_DIM // 2)
    places = torch.arange(tokens)
    return [
        row(
            "rms_norm with addition, 512 tokens",
            lambda: kernels.add_rms_norm(branch, residual, weight, 1e-5),
            floor.read_ms(residual.nbytes * 2 + branch.nbytes * 2),
        ),
        row(
            "gated_mul, 512 tokens",
            lambda: kernels.gated_mul(gate_up, GateActivation.SILU),
            floor.read_ms(gate_up.nbytes * 1.5),
        ),
        row(
            "rope_write_kv, 512 tokens",
            lambda: kernels.rope_write_kv(qkv, cos_sin, places, places, layer),
            floor.read_ms(qkv.nbytes * 2),
        ),
    ]


def digest_row(num_threads: int) -> Row:
    """256 blocks of 30 layers on one core, beside that core's own reading rate."""
    pool = torch.zeros(256, 30, 2, KV_HEADS, BLOCK, HEAD_DIM, dtype=BF16)
    torch.set_num_threads(1)
    TEAM.resize(1)
    least = measure_floor(REPEATS // 5).read_ms(pool.nbytes)
    torch.set_num_threads(num_threads)
    TEAM.resize(num_threads)
    name = f"block_digest, {pool.nbytes >> 20} MiB on 1 core"
    return row(name, lambda: block_digest(pool, range(256)), least)


def row(name: str, work: Callable[[], object], floor_ms: float) -> Row:
    """In microseconds."""
    return Row(name, best_of(work, REPEATS) * 1e6, "us", floor_ms * 1e3)


def main() -> int:
    """Prints the table; kernels have no goals of their own, whole steps do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    TEAM.resize(options.threads)
    kernels = kernels_for(torch.device("cpu"), kernels_folder())
    floor = measure_floor()
    rows = [
        *linear_rows(kernels, floor),
        *attention_rows(kernels, floor),
        *elementwise_rows(kernels, floor),
        *(row(*work) for work in sampling_work(floor)),
        digest_row(options.threads),
    ]
    print_table(
        f"kernels {kernels.name}, bfloat16, {options.threads} threads; {floor}",
        rows,
    )
    write_json(options.json, "kernels", rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
