"""Attention of one query token per sequence over its paged KV, split along the context.

Flash decoding (Dao et al., 2023) with splits and a grid as in `context_splits`; the heads of a
group share each read of K and V. Safe to capture in a CUDA graph: grid and memory follow from
`num_decodes` and `max_context_len` only, and a padded sequence (context 0) costs nothing.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.paged_queries import PagedQueries
from kernels.triton.context_splits import (
    bound_splits,
    locate,
    num_programs,
    split_ends,
    tokens_of,
)
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.merge_splits import merge_splits, store_split
from kernels.triton.online_softmax import LOG2_E, empty_softmax
from kernels.triton.paged_rows import attend_tokens
from kernels.triton.tuning import DecodeTiles, decode_tiles

MIN_DOT = 16
"""The smallest side of tl.dot."""


# grid [num_programs], each with every n-th of the items (split of a sequence, KV head)
@triton.jit(do_not_specialize=("num_decodes", "table_stride", "bound"))
def _attend_split(
    query,
    kv_layer,
    context_lens,
    block_tables,
    part_sums,  # float32 [num_decodes, num_heads, bound, HEAD_DIM], normalized
    part_logs,  # float32 [num_decodes, num_heads, bound]: log2 of the sum of exponentials
    out,
    scale,
    num_decodes,
    query_stride,
    block_stride,
    table_stride,
    bound,
    BATCH: tl.constexpr,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    ends = split_ends(
        context_lens, num_decodes, BATCH, WINDOW, MIN_SPLIT, MAX_SPLITS, CHUNK
    )  # int32 [BATCH]
    num_items = tl.max(ends, axis=0) * NUM_KV_HEADS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask = (rows < GROUP)[:, None] & (columns < HEAD_DIM)[None, :]
    for item in range(tl.program_id(0), num_items, tl.num_programs(0)):
        seq, split = locate(item // NUM_KV_HEADS, ends)
        kv_head = item % NUM_KV_HEADS
        context_len = tl.load(context_lens + seq)
        start, end, is_only = tokens_of(split, context_len, WINDOW, MIN_SPLIT, MAX_SPLITS, CHUNK)
        heads = kv_head * GROUP + rows
        from_query = query + seq.to(tl.int64) * query_stride
        q = tl.load(from_query + heads[:, None] * HEAD_DIM + columns[None, :], mask=mask, other=0.0)
        key_head = kv_layer + kv_head * BLOCK * ROW_WIDTH
        top, total, sums = empty_softmax(ROWS, WIDTH)
        top, total, sums = attend_tokens(
            q,
            key_head,
            key_head + NUM_KV_HEADS * BLOCK * ROW_WIDTH,
            block_tables + seq.to(tl.int64) * table_stride,
            start,
            end,
            tl.zeros([ROWS], tl.int32) + (context_len - 1),
            scale,
            top,
            total,
            sums,
            block_stride,
            BLOCK=BLOCK,
            HEAD_DIM=HEAD_DIM,
            WIDTH=WIDTH,
            CHUNK=CHUNK,
            WINDOW=WINDOW,
            QUANTIZED=ROW_WIDTH != HEAD_DIM,
            MASKED=True,
        )
        row = seq.to(tl.int64) * (NUM_KV_HEADS * GROUP) + heads
        inside = rows < GROUP
        to = (out, part_sums, part_logs)
        store_split(top, total, sums, is_only, *to, row, split, bound, columns, inside, HEAD_DIM)


def decode_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    out: torch.Tensor,
    window: int | None = None,
    tiles: DecodeTiles | None = None,
) -> None:
    """The first `queries.num_decodes` rows; shapes as in kernels/reference/paged_attention.py.

    Writes out [num_tokens, num_heads * head_dim]; zeros for a context of 0. `tiles` are the tuned
    ones unless given.
    """
    _, num_heads, head_dim = query.shape
    _, _, num_kv_heads, block_size, row_width = kv_layer.shape
    num_decodes, group = queries.num_decodes, num_heads // num_kv_heads
    tiles = tiles or decode_tiles(head_dim, group, num_kv_heads, kv_layer.dtype.itemsize)
    bound = bound_splits(queries.max_context_len, window, tiles)
    shape = (num_decodes, num_heads, bound)
    part_sums = torch.empty((*shape, head_dim), dtype=torch.float32, device=query.device)
    part_logs = torch.empty(shape, dtype=torch.float32, device=query.device)
    with on_device_of(query):
        _attend_split[(num_programs(num_decodes * bound * num_kv_heads, query.device, tiles),)](
            query,
            kv_layer,
            queries.context_lens,
            queries.block_tables,
            part_sums,
            part_logs,
            out,
            scale * LOG2_E,
            num_decodes,
            query.stride(0),
            kv_layer.stride(0),
            queries.block_tables.stride(0),
            bound,
            BATCH=next_power_of_2(num_decodes),
            GROUP=group,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            ROW_WIDTH=row_width,
            BLOCK=block_size,
            ROWS=max(MIN_DOT, next_power_of_2(group)),
            WIDTH=next_power_of_2(max(head_dim, MIN_DOT)),
            WINDOW=window or 0,
            MIN_SPLIT=tiles.min_split,
            MAX_SPLITS=tiles.max_splits,
            CHUNK=tiles.chunk,
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
        )
    merge_splits(part_sums, part_logs, queries.context_lens, out, window or 0, tiles)
