"""Causal attention of prompt chunks over their paged prefixes and themselves, without padding."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.paged_queries import PagedQueries
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.online_softmax import absorb, load_rows

_TILE_TOKENS = 64
_CHUNK_TOKENS = 64
_MIN_DOT = 16


# grid [cdiv(max_query_len, TILE), num_heads, num_seqs - num_decodes]
@triton.jit
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
    max_blocks,
    num_decodes,
    block_size,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
):
    tile, head, seq = tl.program_id(0), tl.program_id(1), num_decodes + tl.program_id(2)
    first_row = tl.load(query_starts + seq)
    query_len = tl.load(query_starts + seq + 1) - first_row
    if tile * TILE < query_len:
        context_len = tl.load(context_lens + seq)
        in_chunk, columns = tile * TILE + tl.arange(0, TILE), tl.arange(0, WIDTH)
        rows = (first_row + in_chunk).to(tl.int64)
        mask = (in_chunk < query_len)[:, None] & (columns < HEAD_DIM)[None, :]
        at = head * HEAD_DIM + columns[None, :]
        q = tl.load(query + rows[:, None] * query_stride + at, mask=mask, other=0.0)
        table = block_tables + seq.to(tl.int64) * max_blocks
        key = kv_layer + (head // GROUP) * block_size * HEAD_DIM
        value = key + NUM_KV_HEADS * block_size * HEAD_DIM
        positions = context_len - query_len + in_chunk
        top = tl.full([TILE], float("-inf"), tl.float32)
        total = tl.zeros([TILE], tl.float32)
        sums = tl.zeros([TILE, WIDTH], tl.float32)
        end = tl.minimum(context_len, context_len - query_len + (tile + 1) * TILE)
        for first in range(0, end, CHUNK):
            tokens = first + tl.arange(0, CHUNK)
            keys = load_rows(key, table, tokens, end, block_stride, block_size, columns, HEAD_DIM)
            values = load_rows(
                value, table, tokens, end, block_stride, block_size, columns, HEAD_DIM
            )
            visible = tokens[None, :] <= positions[:, None]
            top, total, sums = absorb(q, keys, values, visible, scale, top, total, sums)
        result = (sums / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + rows[:, None] * out_stride + at, result, mask=mask)


def prefill_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    out: torch.Tensor,
) -> None:
    """The sequences after the first `queries.num_decodes`; writes their rows of
    out [num_tokens, num_heads * head_dim]."""
    _, num_heads, head_dim = query.shape
    _, _, num_kv_heads, block_size, _ = kv_layer.shape
    num_prefills = queries.context_lens.shape[0] - queries.num_decodes
    with on_device_of(query):
        _attend_tile[(triton.cdiv(queries.max_query_len, _TILE_TOKENS), num_heads, num_prefills)](
            query,
            kv_layer,
            queries.query_starts,
            queries.context_lens,
            queries.block_tables,
            out,
            scale,
            query.stride(0),
            out.stride(0),
            kv_layer.stride(0),
            queries.block_tables.shape[1],
            queries.num_decodes,
            block_size,
            GROUP=num_heads // num_kv_heads,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            TILE=_TILE_TOKENS,
            WIDTH=next_power_of_2(max(head_dim, _MIN_DOT)),
            CHUNK=_CHUNK_TOKENS,
        )
