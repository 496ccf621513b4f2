"""Causal attention of prompt chunks over their paged prefixes and themselves, without padding.

FlashAttention-2 (Dao, 2023) over blocks: a tile has the query rows of all heads that share a KV
head, so that short chunks fill it too; chunks of tokens that every row sees run without masks, only
those on the diagonal (and on the edge of a window) have them. Late tiles, which have most to read,
start first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.paged_queries import PagedQueries
from kernels.triton.gpu import gpu_of
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.online_softmax import LOG2_E, empty_softmax, normalized
from kernels.triton.paged_rows import attend_tokens
from kernels.triton.tuning import PrefillTiles, prefill_tiles

MIN_DOT = 16


@triton.jit
def _seen(lowest, context_len, TOKENS: tl.constexpr, CHUNK: tl.constexpr, WINDOW: tl.constexpr):
    """Where what a tile sees begins; from where to where all its rows see all; and where it ends.
    `lowest`: the first row sees tokens up to here."""
    end = tl.minimum(context_len, lowest + TOKENS)  # nobody sees what follows
    start = 0
    edge = 0
    if WINDOW > 0:
        start = tl.maximum(lowest - WINDOW + 1, 0) // CHUNK * CHUNK
        edge = tl.cdiv(tl.maximum(end - WINDOW, 0), CHUNK) * CHUNK
    diagonal = (lowest + 1) // CHUNK * CHUNK
    return start, tl.minimum(edge, diagonal), diagonal, end


# grid [cdiv(max_query_len, ROWS // GROUP), num_kv_heads, num_seqs - num_decodes]
@triton.jit(do_not_specialize=("num_decodes", "table_stride"))
def _attend_tile(
    query,
    kv_layer,
    query_starts,
    context_lens,
    block_tables,
    out,
    scale,
    query_stride,
    out_stride,
    block_stride,
    table_stride,
    num_decodes,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    WINDOW: tl.constexpr,
):
    TOKENS: tl.constexpr = ROWS // GROUP
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head, seq = tl.program_id(1), num_decodes + tl.program_id(2)
    first_row = tl.load(query_starts + seq)
    query_len = tl.load(query_starts + seq + 1) - first_row
    if tile * TOKENS < query_len:
        context_len = tl.load(context_lens + seq)
        rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
        in_chunk = tile * TOKENS + rows // GROUP
        heads = kv_head * GROUP + rows % GROUP
        inside = (rows < TOKENS * GROUP) & (in_chunk < query_len)
        mask = inside[:, None] & (columns < HEAD_DIM)[None, :]
        token = (first_row + in_chunk).to(tl.int64)
        at = heads[:, None] * HEAD_DIM + columns[None, :]
        q = tl.load(query + token[:, None] * query_stride + at, mask=mask, other=0.0)
        before = context_len - query_len
        positions = before + tl.minimum(in_chunk, query_len - 1)
        start, edge, diagonal, end = _seen(
            before + tile * TOKENS, context_len, TOKENS, CHUNK, WINDOW
        )
        table = block_tables + seq.to(tl.int64) * table_stride
        key_head = kv_layer + kv_head * BLOCK * ROW_WIDTH
        value_head = key_head + NUM_KV_HEADS * BLOCK * ROW_WIDTH
        top, total, sums = empty_softmax(ROWS, WIDTH)
        for part in tl.static_range(0 if WINDOW > 0 else 1, 3):
            top, total, sums = attend_tokens(
                q,
                key_head,
                value_head,
                table,
                start if part == 0 else edge if part == 1 else diagonal,
                edge if part == 0 else diagonal if part == 1 else end,
                positions,
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
                MASKED=part != 1,
            )
        result = normalized(total, sums).to(out.dtype.element_ty)
        tl.store(out + token[:, None] * out_stride + at, result, mask=mask)


def prefill_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    out: torch.Tensor,
    window: int | None = None,
    tiles: PrefillTiles | None = None,
) -> None:
    """The sequences after the first `queries.num_decodes`; writes their rows of
    out [num_tokens, num_heads * head_dim]. `tiles` are the tuned ones unless given."""
    _, num_heads, head_dim = query.shape
    _, _, num_kv_heads, block_size, row_width = kv_layer.shape
    num_prefills = queries.context_lens.shape[0] - queries.num_decodes
    group = num_heads // num_kv_heads
    tiles = tiles or prefill_tiles(
        head_dim, group, queries.max_query_len, kv_layer.dtype.itemsize, gpu_of(query.device)
    )
    num_tiles = triton.cdiv(queries.max_query_len, tiles.rows // group)
    with on_device_of(query):
        _attend_tile[(num_tiles, num_kv_heads, num_prefills)](
            query,
            kv_layer,
            queries.query_starts,
            queries.context_lens,
            queries.block_tables,
            out,
            scale * LOG2_E,
            query.stride(0),
            out.stride(0),
            kv_layer.stride(0),
            queries.block_tables.stride(0),
            queries.num_decodes,
            GROUP=group,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            ROW_WIDTH=row_width,
            BLOCK=block_size,
            ROWS=tiles.rows,
            WIDTH=next_power_of_2(max(head_dim, MIN_DOT)),
            CHUNK=tiles.chunk,
            WINDOW=window or 0,
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
        )
