"""Attention of one query token per sequence over its paged KV, split along the context.

Splits have a fixed length, so that a row's arithmetic depends on its own context only and not on
the batch; many splits keep the device busy when sequences are few (flash decoding, Dao et al.).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.paged_queries import PagedQueries
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.online_softmax import absorb, load_rows

SPLIT_TOKENS = 256
_CHUNK_TOKENS = 64
_MIN_DOT = 16  # the smallest side of tl.dot


# grid [num_decodes, num_kv_heads, num_splits]
@triton.jit
def _attend_split(
    query,
    kv_layer,
    context_lens,
    block_tables,
    part_sums,  # float32 [num_decodes, num_heads, num_splits, HEAD_DIM], normalized
    part_logs,  # float32 [num_decodes, num_heads, num_splits]: log of the sum of exponentials
    scale,
    query_stride,
    block_stride,
    max_blocks,
    num_splits,
    block_size,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
    CHUNK: tl.constexpr,
):
    seq, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    context_len = tl.load(context_lens + seq)
    start = split * SPLIT
    if start < context_len:
        rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
        heads = kv_head * GROUP + rows
        mask = (rows < GROUP)[:, None] & (columns < HEAD_DIM)[None, :]
        from_query = query + seq.to(tl.int64) * query_stride
        q = tl.load(from_query + heads[:, None] * HEAD_DIM + columns[None, :], mask=mask, other=0.0)
        table = block_tables + seq.to(tl.int64) * max_blocks
        key = kv_layer + kv_head * block_size * HEAD_DIM
        value = key + NUM_KV_HEADS * block_size * HEAD_DIM
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        sums = tl.zeros([ROWS, WIDTH], tl.float32)
        end = tl.minimum(context_len, start + SPLIT)
        for first in range(start, end, CHUNK):
            tokens = first + tl.arange(0, CHUNK)
            keys = load_rows(key, table, tokens, end, block_stride, block_size, columns, HEAD_DIM)
            values = load_rows(
                value, table, tokens, end, block_stride, block_size, columns, HEAD_DIM
            )
            top, total, sums = absorb(
                q, keys, values, (tokens < end)[None, :], scale, top, total, sums
            )
        part = (seq * NUM_KV_HEADS * GROUP + heads).to(tl.int64) * num_splits + split
        to = part_sums + part[:, None] * HEAD_DIM + columns[None, :]
        tl.store(to, sums / total[:, None], mask=mask)
        tl.store(part_logs + part, top + tl.log(total), mask=rows < GROUP)


# grid [num_decodes, num_heads]
@triton.jit
def _merge_splits(
    part_sums,
    part_logs,
    context_lens,
    out,
    num_splits,
    num_heads,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
):
    seq, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    inside = columns < HEAD_DIM
    first = (seq * num_heads + head) * num_splits
    used = tl.cdiv(tl.load(context_lens + seq), SPLIT)
    top = tl.load(part_logs + first)
    total = tl.exp(top - top)
    sums = tl.load(part_sums + first * HEAD_DIM + columns, mask=inside, other=0.0)
    for split in range(1, used):
        log = tl.load(part_logs + first + split)
        new_top = tl.maximum(top, log)
        decay, weight = tl.exp(top - new_top), tl.exp(log - new_top)
        part = part_sums + (first + split) * HEAD_DIM + columns
        sums = sums * decay + weight * tl.load(part, mask=inside, other=0.0)
        total = total * decay + weight
        top = new_top
    at = out + (seq * num_heads + head) * HEAD_DIM + columns
    tl.store(at, (sums / total).to(out.dtype.element_ty), mask=inside)


def decode_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    out: torch.Tensor,
) -> None:
    """The first `queries.num_decodes` rows; shapes as in kernels/reference/paged_attention.py.

    Writes out [num_tokens, num_heads * head_dim].
    """
    _, num_heads, head_dim = query.shape
    _, _, num_kv_heads, block_size, _ = kv_layer.shape
    num_decodes = queries.num_decodes
    num_splits = triton.cdiv(queries.max_context_len, SPLIT_TOKENS)
    shape = (num_decodes, num_heads, num_splits)
    part_sums = torch.empty((*shape, head_dim), dtype=torch.float32, device=query.device)
    part_logs = torch.empty(shape, dtype=torch.float32, device=query.device)
    group, width = num_heads // num_kv_heads, next_power_of_2(max(head_dim, _MIN_DOT))
    with on_device_of(query):
        _attend_split[(num_decodes, num_kv_heads, num_splits)](
            query,
            kv_layer,
            queries.context_lens,
            queries.block_tables,
            part_sums,
            part_logs,
            scale,
            query.stride(0),
            kv_layer.stride(0),
            queries.block_tables.shape[1],
            num_splits,
            block_size,
            GROUP=group,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            ROWS=max(_MIN_DOT, next_power_of_2(group)),
            WIDTH=width,
            SPLIT=SPLIT_TOKENS,
            CHUNK=_CHUNK_TOKENS,
        )
        _merge_splits[(num_decodes, num_heads)](
            part_sums,
            part_logs,
            queries.context_lens,
            out,
            num_splits,
            num_heads,
            HEAD_DIM=head_dim,
            WIDTH=width,
            SPLIT=SPLIT_TOKENS,
        )
