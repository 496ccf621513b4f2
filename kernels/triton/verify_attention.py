"""Attention of a few query tokens per sequence, as many of each, over its paged KV, split along the
context: decode attention for steps that verify drafts.

A program's tile has the rows of several tokens and of the heads that share a KV head, so that each
read of K and V serves all of them; a row sees the tokens up to its own. Splits are those of the
last token (context_splits.py), so that a row has the bits of a decode step's row wherever both have
the same splits: without a window, at contexts that are cut at MIN_SPLIT. Safe to capture in a CUDA
graph: grid and memory follow from shapes and bounds only.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require
from kernels.paged_queries import PagedQueries
from kernels.triton.context_splits import (
    bound_splits,
    locate,
    num_programs,
    split_ends,
    tokens_of,
)
from kernels.triton.gpu import gpu_of
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.merge_splits import merge_splits, store_split
from kernels.triton.online_softmax import LOG2_E, empty_softmax
from kernels.triton.paged_rows import attend_tokens
from kernels.triton.tuning import DecodeTiles, HeadsShape, verify_tiles

MIN_DOT = 16
"""The smallest side of tl.dot."""


# grid [num_programs], each with every n-th of the items (split of a sequence, KV head, tile)
@triton.jit(do_not_specialize=("num_seqs", "table_stride", "bound"))
def _attend_split(
    query,
    kv_layer,
    context_lens,
    block_tables,
    part_sums,  # float32 [num_seqs * QUERIES, num_heads, bound, HEAD_DIM], normalized
    part_logs,  # float32 [num_seqs * QUERIES, num_heads, bound]: log2 of sums of exponentials
    out,
    scale,
    num_seqs,
    query_stride,
    block_stride,
    table_stride,
    bound,
    BATCH: tl.constexpr,
    QUERIES: tl.constexpr,
    TOKENS: tl.constexpr,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    REACH: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    TILES: tl.constexpr = (QUERIES + TOKENS - 1) // TOKENS
    ends = split_ends(
        context_lens, num_seqs, BATCH, REACH, MIN_SPLIT, MAX_SPLITS, CHUNK
    )  # int32 [BATCH]
    num_items = tl.max(ends, axis=0) * NUM_KV_HEADS * TILES
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    for item in range(tl.program_id(0), num_items, tl.num_programs(0)):
        seq, split = locate(item // (NUM_KV_HEADS * TILES), ends)
        kv_head = item // TILES % NUM_KV_HEADS
        place = item % TILES * TOKENS + rows // GROUP  # of a row's token among the sequence's
        inside = (rows < TOKENS * GROUP) & (place < QUERIES)
        mask = inside[:, None] & (columns < HEAD_DIM)[None, :]
        context_len = tl.load(context_lens + seq)
        start, end, is_only = tokens_of(split, context_len, REACH, MIN_SPLIT, MAX_SPLITS, CHUNK)
        heads = kv_head * GROUP + rows % GROUP
        token = seq.to(tl.int64) * QUERIES + place
        at = token[:, None] * query_stride + heads[:, None] * HEAD_DIM + columns[None, :]
        q = tl.load(query + at, mask=mask, other=0.0)
        key_head = kv_layer + kv_head * BLOCK * ROW_WIDTH
        top, total, sums = empty_softmax(ROWS, WIDTH)
        top, total, sums = attend_tokens(
            q,
            key_head,
            key_head + NUM_KV_HEADS * BLOCK * ROW_WIDTH,
            block_tables + seq.to(tl.int64) * table_stride,
            start,
            end,
            context_len - QUERIES + place,
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
        total = tl.where(total > 0.0, total, 1.0)  # of a row that is before all of the split
        row = token * (NUM_KV_HEADS * GROUP) + heads
        to = (out, part_sums, part_logs)
        store_split(top, total, sums, is_only, *to, row, split, bound, columns, inside, HEAD_DIM)


def verify_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    out: torch.Tensor,
    window: int | None = None,
    tiles: DecodeTiles | None = None,
) -> None:
    """`queries.rows_each` rows of every sequence, as kernels/reference/paged_attention.py has them.
    No context is shorter than its rows. Writes out [num_tokens, num_heads * head_dim]; `tiles` are
    the tuned ones unless given."""
    num_tokens, num_heads, head_dim = query.shape
    _, _, num_kv_heads, block_size, row_width = kv_layer.shape
    num_seqs, each = queries.context_lens.shape[0], queries.rows_each
    require(
        num_tokens == num_seqs * each,
        f"{num_tokens} query rows for {num_seqs} sequences of {each} each",
    )
    group = num_heads // num_kv_heads
    heads = HeadsShape(
        head_dim=head_dim,
        group=group,
        num_kv_heads=num_kv_heads,
        query_bytes=query.dtype.itemsize,
        value_bytes=kv_layer.dtype.itemsize,
    )
    found = verify_tiles(heads, each, gpu_of(query.device))
    if found is None:
        raise ValueError(f"rows of {head_dim} x {group} heads do not fit this GPU's shared memory")
    tokens, tuned = found
    tiles = tiles or tuned
    reach = 0 if window is None else window + each - 1  # what the first row sees, from the last on
    bound = bound_splits(queries.max_context_len, reach or None, tiles)
    shape = (num_tokens, num_heads, bound)
    part_sums = torch.empty((*shape, head_dim), dtype=torch.float32, device=query.device)
    part_logs = torch.empty(shape, dtype=torch.float32, device=query.device)
    num_items = num_seqs * bound * num_kv_heads * triton.cdiv(each, tokens)
    with on_device_of(query):
        _attend_split[(num_programs(num_items, query.device, tiles),)](
            query,
            kv_layer,
            queries.context_lens,
            queries.block_tables,
            part_sums,
            part_logs,
            out,
            scale * LOG2_E,
            num_seqs,
            query.stride(0),
            kv_layer.stride(0),
            queries.block_tables.stride(0),
            bound,
            BATCH=next_power_of_2(num_seqs),
            QUERIES=each,
            TOKENS=tokens,
            GROUP=group,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            ROW_WIDTH=row_width,
            BLOCK=block_size,
            ROWS=max(MIN_DOT, next_power_of_2(group * tokens)),
            WIDTH=next_power_of_2(max(head_dim, MIN_DOT)),
            WINDOW=window or 0,
            REACH=reach,
            MIN_SPLIT=tiles.min_split,
            MAX_SPLITS=tiles.max_splits,
            CHUNK=tiles.chunk,
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
        )
    merge_splits(part_sums, part_logs, queries.context_lens, out, reach, tiles, each)
