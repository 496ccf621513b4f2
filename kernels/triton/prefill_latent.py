"""Latent attention of prompt chunks: tiles of (token, head) rows, the diagonal alone masked."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.paged_queries import PagedQueries
from kernels.triton.gpu import gpu_of
from kernels.triton.latent_rows import attend_latents, load_query
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.online_softmax import LOG2_E, empty_softmax, normalized
from kernels.triton.tuning import prefill_latent_tiles

MIN_DOT = 16


# grid [cdiv(max_query_len * num_heads, ROWS), num_seqs - num_decodes]
@triton.jit(do_not_specialize=("num_decodes", "table_stride"))
def _attend_tile(
    query,
    kv_layer,
    query_starts,
    context_lens,
    block_tables,
    out,
    scale,
    block_stride,
    table_stride,
    num_decodes,
    NUM_HEADS: tl.constexpr,
    ROW_DIM: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    REST: tl.constexpr,
    CHUNK: tl.constexpr,
):
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    seq = num_decodes + tl.program_id(1)
    first_row = tl.load(query_starts + seq)
    query_len = tl.load(query_starts + seq + 1) - first_row
    if tile * ROWS < query_len * NUM_HEADS:
        context_len = tl.load(context_lens + seq)
        rows, columns = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
        inside = rows < query_len * NUM_HEADS
        row = first_row.to(tl.int64) * NUM_HEADS + rows
        q, q_rest = load_query(query, row, inside, ROW_DIM, VALUE_DIM, WIDTH, REST)
        before = context_len - query_len
        last = tl.minimum((tile + 1) * ROWS, query_len * NUM_HEADS) - 1
        end = before + last // NUM_HEADS + 1  # nobody sees what follows
        diagonal = (before + tile * ROWS // NUM_HEADS + 1) // CHUNK * CHUNK
        positions = tl.minimum(before + rows // NUM_HEADS, end - 1)
        top, total, sums = empty_softmax(ROWS, WIDTH)
        for part in tl.static_range(2):
            top, total, sums = attend_latents(
                q,
                q_rest,
                kv_layer,
                block_tables + seq.to(tl.int64) * table_stride,
                diagonal * part,
                diagonal if part == 0 else end,
                positions,
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
                MASKED=part == 1,
            )
        to = out + row[:, None] * VALUE_DIM + columns[None, :]
        mask = inside[:, None] & (columns < VALUE_DIM)[None, :]
        tl.store(to, normalized(total, sums).to(out.dtype.element_ty), mask=mask)


def prefill_latent(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    value_dim: int,
    out: torch.Tensor,
) -> None:
    """The sequences after the first `queries.num_decodes`; writes their rows of
    out [num_tokens, num_heads * value_dim]."""
    _, num_heads, row_dim = query.shape
    num_prefills = queries.context_lens.shape[0] - queries.num_decodes
    tiles = prefill_latent_tiles(kv_layer.dtype.itemsize, gpu_of(query.device))
    num_tiles = triton.cdiv(queries.max_query_len * num_heads, tiles.rows)
    with on_device_of(query):
        _attend_tile[(num_tiles, num_prefills)](
            query,
            kv_layer,
            queries.query_starts,
            queries.context_lens,
            queries.block_tables,
            out,
            scale * LOG2_E,
            kv_layer.stride(0),
            queries.block_tables.stride(0),
            queries.num_decodes,
            NUM_HEADS=num_heads,
            ROW_DIM=row_dim,
            ROW_WIDTH=kv_layer.shape[4],
            VALUE_DIM=value_dim,
            BLOCK=kv_layer.shape[3],
            ROWS=tiles.rows,
            WIDTH=next_power_of_2(max(value_dim, MIN_DOT)),
            REST=next_power_of_2(max(row_dim - value_dim, MIN_DOT)),
            CHUNK=tiles.chunk,
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
        )
