"""Equal sequences with scattered blocks, and how much of them attention has to touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernels.paged_queries import KV_SCALE_BYTES, QUANTIZED_KV, PagedQueryTables

BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """`num_seqs` sequences of `context_len` tokens, the last `query_len` of which are queries."""

    num_seqs: int
    context_len: int
    query_len: int = 1
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    kv_dtype: torch.dtype = torch.bfloat16
    window: int | None = None

    def __str__(self) -> str:
        pool = "" if self.kv_dtype is torch.bfloat16 else f" {str(self.kv_dtype)[6:]}"
        window = "" if self.window is None else f" window {self.window}"
        queries = "" if self.query_len == 1 else f" last {self.query_len}"
        heads = f"{self.num_heads}/{self.num_kv_heads}x{self.head_dim}"
        return f"{self.num_seqs} x {self.context_len}{queries}, {heads}{pool}{window}"

    @property
    def row_width(self) -> int:
        """Elements of a row of the pool."""
        return self.head_dim + (KV_SCALE_BYTES if self.kv_dtype in QUANTIZED_KV else 0)

    @property
    def blocks_each(self) -> int:
        """Of a sequence."""
        return -(-self.context_len // BLOCK)

    @property
    def pool_bytes(self) -> int:
        """Of a pool with one layer that holds these sequences."""
        rows = self.num_seqs * self.blocks_each * BLOCK * 2 * self.num_kv_heads
        return rows * self.row_width * self.kv_dtype.itemsize

    @property
    def kv_bytes(self) -> int:
        """What decodes read at least: K and V of the visible tokens, once per KV head."""
        seen = min(self.context_len, self.window or self.context_len)
        rows = self.num_seqs * seen * 2 * self.num_kv_heads
        return rows * self.row_width * self.kv_dtype.itemsize

    @property
    def flops(self) -> float:
        """Two products over the tokens that causal queries see; a multiply-add is two."""
        seen = self.context_len - (self.query_len - 1) / 2
        return 4.0 * self.num_seqs * self.query_len * seen * self.num_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionInputs:
    """What a paged attention takes."""

    query: torch.Tensor  # [num_tokens, num_heads, head_dim]
    kv_layer: torch.Tensor  # [num_blocks, 2, num_kv_heads, BLOCK, row_width]
    queries: PagedQueryTables


def tables(shape: AttentionShape, device: torch.device) -> PagedQueryTables:
    """Blocks in random order."""
    num_blocks = shape.num_seqs * shape.blocks_each
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0))
    lens = torch.full((shape.num_seqs,), shape.context_len, dtype=torch.int32)
    starts = (torch.arange(shape.num_seqs + 1) * shape.query_len).int()
    return PagedQueryTables(
        query_starts=starts.to(device),
        context_lens=lens.to(device),
        block_tables=order.view(shape.num_seqs, -1).int().to(device),
        num_decodes=shape.num_seqs if shape.query_len == 1 else 0,
        max_query_len=shape.query_len,
        max_context_len=shape.context_len,
    )


def inputs(shape: AttentionShape, copies: int, memory: torch.Tensor) -> Iterator[AttentionInputs]:
    """Layers in `memory` (bytes, of any contents that are no NaN as the pool's dtype), one after
    another; one query and one table for all. Raises ValueError when it is too small."""
    needed = copies * shape.pool_bytes
    if memory.numel() < needed:
        raise ValueError(
            f"{shape} needs {needed} bytes for {copies} layers; {memory.numel()} given"
        )
    num_tokens = shape.num_seqs * shape.query_len
    dtype = torch.bfloat16 if memory.is_cuda else torch.float32
    query = torch.randn(num_tokens, shape.num_heads, shape.head_dim, device=memory.device).to(dtype)
    queries = tables(shape, memory.device)
    sides = (2, shape.num_kv_heads, BLOCK, shape.row_width)
    for layer in memory[:needed].view(copies, -1).unbind():
        kv_layer = layer.view(shape.kv_dtype).view(-1, *sides)
        yield AttentionInputs(query=query, kv_layer=kv_layer, queries=queries)
