"""The part of a ragged batch that attention reads; `engine.model.ragged_batch` has such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.door import require_dtype, require_shape

QUANTIZED_KV = frozenset({torch.int8, torch.float8_e4m3fn})
"""Dtypes of a pool whose rows have a scale each."""
KV_SCALE_BYTES = 4
"""A float32 per row of a quantized pool, behind the values of all rows of its block and head."""


class PagedQueries(Protocol):
    """Sequences side by side; decodes first. Sequence s has query rows
    [query_starts[s], query_starts[s + 1]), the last of which is token context_lens[s] - 1."""

    @property
    def query_starts(self) -> torch.Tensor: ...  # int32 [num_seqs + 1]

    @property
    def context_lens(self) -> torch.Tensor: ...  # int32 [num_seqs]

    @property
    def block_tables(self) -> torch.Tensor: ...  # int32 [num_seqs, max_blocks]

    @property
    def num_decodes(self) -> int: ...

    @property
    def max_query_len(self) -> int: ...

    @property
    def max_context_len(self) -> int: ...

    @property
    def rows_each(self) -> int: ...  # query rows of every sequence; 0: they may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedQueryTables:
    """The plain form of PagedQueries, for tests and benchmarks of kernels."""

    query_starts: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    num_decodes: int
    max_query_len: int
    max_context_len: int
    rows_each: int = 0


def check_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    window: int | None = None,
) -> None:
    """The door of every paged attention: shapes, dtypes and strides; not the block ids."""
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; a token sees itself: needed: 1 or more")
    num_kv_heads, head_dim = check_kv_layer(kv_layer)
    if query.dim() != 3 or query.shape[2] != head_dim or query.shape[1] % num_kv_heads:
        raise ValueError(
            f"query {tuple(query.shape)} does not fit {num_kv_heads} KV heads of {head_dim}"
        )
    if kv_layer.dtype not in QUANTIZED_KV:
        require_dtype("kv_layer", kv_layer, query.dtype)
    check_tables(queries)


def check_tables(queries: PagedQueries) -> None:
    """The part of an attention's door that is about the ragged batch."""
    num_seqs = queries.context_lens.shape[0]
    require_dtype("context_lens", queries.context_lens, torch.int32)
    require_dtype("query_starts", queries.query_starts, torch.int32)
    require_dtype("block_tables", queries.block_tables, torch.int32)
    require_shape("query_starts", queries.query_starts, (num_seqs + 1,))
    if queries.block_tables.dim() != 2 or queries.block_tables.shape[0] != num_seqs:
        raise ValueError(
            f"block_tables is {tuple(queries.block_tables.shape)} for {num_seqs} sequences"
        )


def check_kv_layer(kv_layer: torch.Tensor) -> tuple[int, int]:
    """A layer of a pool, [num_blocks, 2, num_kv_heads, block_size, head_dim], without gaps inside
    a block; rows of a quantized one are nominally 4 longer. Returns (num_kv_heads, head_dim)."""
    if kv_layer.dim() != 5:
        raise ValueError(f"kv_layer has {kv_layer.dim()} dimensions; needed: 5")
    _, two, num_kv_heads, block_size, width = kv_layer.shape
    head = block_size * width
    if two != 2 or kv_layer.stride()[1:] != (num_kv_heads * head, head, width, 1):
        raise ValueError(
            f"kv_layer {tuple(kv_layer.shape)} of strides {kv_layer.stride()} is not a layer of a "
            "KV pool"
        )
    if kv_layer.dtype not in QUANTIZED_KV:
        return num_kv_heads, width
    if head % KV_SCALE_BYTES or width <= KV_SCALE_BYTES:
        raise ValueError(
            f"kv_layer has {head} bytes per block and head, rows of {width}; needed: a multiple of "
            f"{KV_SCALE_BYTES}, rows of more than {KV_SCALE_BYTES}"
        )
    return num_kv_heads, width - KV_SCALE_BYTES
