"""Latent attention of one query token per sequence: splits and grid as in `decode_attention`, with
tiles of query heads in place of KV heads."""

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
from kernels.triton.gpu import gpu_of
from kernels.triton.latent_rows import attend_latents, load_query
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.merge_splits import merge_splits, store_split
from kernels.triton.online_softmax import LOG2_E, empty_softmax
from kernels.triton.tuning import decode_latent_tiles

MIN_DOT = 16


# grid [num_programs], each with every n-th of the items (split of a sequence, tile of heads)
@triton.jit(do_not_specialize=("num_decodes", "table_stride", "bound"))
def _attend_split(
    query,
    kv_layer,
    context_lens,
    block_tables,
    part_sums,  # float32 [num_decodes, num_heads, bound, VALUE_DIM], normalized
    part_logs,  # float32 [num_decodes, num_heads, bound]: log2 of the sum of exponentials
    out,
    scale,
    num_decodes,
    block_stride,
    table_stride,
    bound,
    BATCH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    ROW_DIM: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    REST: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    TILES: tl.constexpr = (NUM_HEADS + ROWS - 1) // ROWS
    ends = split_ends(context_lens, num_decodes, BATCH, 0, MIN_SPLIT, MAX_SPLITS, CHUNK)
    num_items = tl.max(ends, axis=0) * TILES
    columns = tl.arange(0, WIDTH)
    for item in range(tl.program_id(0), num_items, tl.num_programs(0)):
        seq, split = locate(item // TILES, ends)
        heads = item % TILES * ROWS + tl.arange(0, ROWS)
        inside = heads < NUM_HEADS
        context_len = tl.load(context_lens + seq)
        start, end, is_only = tokens_of(split, context_len, 0, MIN_SPLIT, MAX_SPLITS, CHUNK)
        row = seq.to(tl.int64) * NUM_HEADS + heads
        q, q_rest = load_query(query, row, inside, ROW_DIM, VALUE_DIM, WIDTH, REST)
        top, total, sums = empty_softmax(ROWS, WIDTH)
        top, total, sums = attend_latents(
            q,
            q_rest,
            kv_layer,
            block_tables + seq.to(tl.int64) * table_stride,
            start,
            end,
            tl.zeros([ROWS], tl.int32) + (end - 1),
            scale,
            top,
            total,
            sums,
            block_stride,
            BLOCK=BLOCK,
            ROW_DIM=ROW_DIM,
            VALUE_DIM=VALUE_DIM,
            WIDTH=WIDTH,
            REST=REST,
            CHUNK=CHUNK,
            QUANTIZED=ROW_WIDTH != ROW_DIM,
            MASKED=True,
        )
        to = (out, part_sums, part_logs)
        store_split(top, total, sums, is_only, *to, row, split, bound, columns, inside, VALUE_DIM)


def decode_latent(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    value_dim: int,
    out: torch.Tensor,
) -> None:
    """The first `queries.num_decodes` rows; shapes as in kernels/reference/latent_attention.py.

    Writes out [num_tokens, num_heads * value_dim]; zeros for a context of 0.
    """
    _, num_heads, row_dim = query.shape
    num_decodes = queries.num_decodes
    rows, tiles = decode_latent_tiles(num_heads, kv_layer.dtype.itemsize, gpu_of(query.device))
    bound = bound_splits(queries.max_context_len, None, tiles)
    shape = (num_decodes, num_heads, bound)
    part_sums = torch.empty((*shape, value_dim), dtype=torch.float32, device=query.device)
    part_logs = torch.empty(shape, dtype=torch.float32, device=query.device)
    num_items = num_decodes * bound * triton.cdiv(num_heads, rows)
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
            num_decodes,
            kv_layer.stride(0),
            queries.block_tables.stride(0),
            bound,
            BATCH=next_power_of_2(num_decodes),
            NUM_HEADS=num_heads,
            ROW_DIM=row_dim,
            ROW_WIDTH=kv_layer.shape[4],
            VALUE_DIM=value_dim,
            BLOCK=kv_layer.shape[3],
            ROWS=rows,
            WIDTH=next_power_of_2(max(value_dim, MIN_DOT)),
            REST=next_power_of_2(max(row_dim - value_dim, MIN_DOT)),
            MIN_SPLIT=tiles.min_split,
            MAX_SPLITS=tiles.max_splits,
            CHUNK=tiles.chunk,
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
        )
    merge_splits(part_sums, part_logs, queries.context_lens, out, 0, tiles)
