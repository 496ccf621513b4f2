"""Latent attention on a GPU, one token per sequence, beside bytes or multiply-adds: what is more.

With 16 heads (DeepSeek-V2-Lite) memory bounds it, with 128 (V3) the products do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks.gpu.attention import MEMORY_BYTES, random_bytes
from benchmarks.gpu.attention_inputs import BLOCK, AttentionShape, tables
from benchmarks.gpu.timing import GpuFloor, Work, gpu_row, num_copies, seconds_per_work
from benchmarks.report import Row
from kernels.dispatch.kernel_sets import triton_set
from kernels.paged_queries import PagedQueryTables
from kernels.tape.kernel_set import KernelSet

ROW_DIM, VALUE_DIM = 576, 512
PART = 0.85
SCALE = 192**-0.5


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Equal sequences."""

    num_seqs: int
    context_len: int
    num_heads: int

    @property
    def paged(self) -> AttentionShape:
        """As far as block tables are concerned."""
        return AttentionShape(num_seqs=self.num_seqs, context_len=self.context_len)

    @property
    def kv_bytes(self) -> int:
        """Rows read once, in bfloat16."""
        return self.num_seqs * self.paged.blocks_each * BLOCK * ROW_DIM * 2

    @property
    def flops(self) -> float:
        """Scores over whole rows, sums over their values."""
        return 2.0 * self.num_seqs * self.context_len * self.num_heads * (ROW_DIM + VALUE_DIM)


def shapes() -> Iterator[LatentShape]:
    """Batches and contexts of both models."""
    for num_heads in (16, 128):
        for num_seqs, context_len in ((1, 4096), (16, 4096), (128, 4096), (16, 32768)):
            yield LatentShape(num_seqs, context_len, num_heads)


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    memory, kernels = random_bytes(MEMORY_BYTES // 4, torch.device("cuda")), triton_set()
    return [_row(kernels, shape, memory, floor) for shape in shapes()]


def _row(kernels: KernelSet, shape: LatentShape, memory: torch.Tensor, floor: GpuFloor) -> Row:
    copies = min(num_copies(shape.kv_bytes), memory.numel() // shape.kv_bytes)
    rounds = seconds_per_work(list(works(kernels, shape, copies, memory, torch.bfloat16)))
    name = f"latent decode, {shape.num_seqs} x {shape.context_len}, {shape.num_heads} heads"
    products_s = shape.flops / floor.bf16_flops_per_s
    if products_s > shape.kv_bytes / floor.copy_bytes_per_s:
        return gpu_row(name, rounds, products_s)
    return floor.bytes_row(name, rounds, shape.kv_bytes, PART)


def works(
    kernels: KernelSet, shape: LatentShape, copies: int, memory: torch.Tensor, dtype: torch.dtype
) -> Iterator[Work]:
    """A call on each of the layers in `memory`."""
    queries = tables(shape.paged, memory.device)
    query = torch.randn(shape.num_seqs, shape.num_heads, ROW_DIM, device=memory.device).to(dtype)
    layer_bytes = shape.kv_bytes // 2 * dtype.itemsize
    for layer in memory[: copies * layer_bytes].view(copies, -1).unbind():
        yield _call(kernels, query, layer.view(dtype).view(-1, 1, 1, BLOCK, ROW_DIM), queries)


def _call(
    kernels: KernelSet, query: torch.Tensor, kv_layer: torch.Tensor, queries: PagedQueryTables
) -> Work:
    return lambda: kernels.latent_attention(query, kv_layer, queries, SCALE, VALUE_DIM)
