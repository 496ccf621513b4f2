"""Rows of a paged pool as tiles: from block tables to K, V and their scales.

A quantized pool (kernels/kv_rows.py) has one byte per value and, behind the values of all rows of a
(block, plane, head), a float32 scale per row. Scales never touch the tiles: K's multiply scores,
V's multiply weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.kv_scales import scales_of
from kernels.triton.online_softmax import weigh


@triton.jit
def blocks_of(table, tokens, end, BLOCK: tl.constexpr):
    """The block id of each token, int32; 0 at and past `end`."""
    return tl.load(table + tokens // BLOCK, mask=tokens < end, other=0)


@triton.jit
def load_tile(rows, columns, inside, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr):
    """[rows, columns] from pointers to rows. Zero where not `inside` (when MASKED) and past the
    head. The pool is read once: its lines leave the cache first."""
    at = rows[:, None] + columns[None, :]
    if MASKED:
        mask = inside[:, None]
        if columns.shape[0] != HEAD_DIM:
            mask = mask & (columns < HEAD_DIM)[None, :]
        tile = tl.load(at, mask=mask, other=0.0, eviction_policy="evict_first")
    elif columns.shape[0] != HEAD_DIM:
        tile = tl.load(at, mask=(columns < HEAD_DIM)[None, :], other=0.0)
    else:
        tile = tl.load(at)
    return tile


@triton.jit
def load_scales(head, row_offsets, tokens, inside, BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr):
    """float32 [tokens]; `head` points to the values of block 0, `row_offsets` to those of a row."""
    in_block = tokens % BLOCK
    values_before = row_offsets - in_block * HEAD_DIM
    scales = scales_of(head + values_before + BLOCK * HEAD_DIM)
    return tl.load(scales + in_block, mask=inside, other=0.0)


@triton.jit
def attend_tokens(
    query,  # [rows, width], in registers
    key_head,  # pointers to K and V of this head in block 0
    value_head,
    table,
    start,
    end,
    positions,  # [rows]: the last token that each row sees
    scale,
    top,
    total,
    sums,
    block_stride,
    BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    WINDOW: tl.constexpr,
    QUANTIZED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Tokens [start, end) into the running softmax; without MASKED every row sees all of them, and
    there are whole chunks of them.

    Block ids are read one chunk ahead, so that loads of K and V depend on no load of their own
    iteration and the compiler can issue them early.
    """
    lanes, columns = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    blocks = blocks_of(table, start + lanes, end, BLOCK)
    for first in range(start, end, CHUNK):
        tokens = first + lanes
        inside = tokens < end
        offsets = blocks.to(tl.int64) * block_stride + (tokens % BLOCK) * HEAD_DIM
        keys = load_tile(key_head + offsets, columns, inside, HEAD_DIM, MASKED)
        values = load_tile(value_head + offsets, columns, inside, HEAD_DIM, MASKED)
        blocks = blocks_of(table, tokens + CHUNK, end, BLOCK)
        scores = tl.dot(query, tl.trans(keys.to(query.dtype)), input_precision="ieee")
        if QUANTIZED:
            scores *= load_scales(key_head, offsets, tokens, inside, BLOCK, HEAD_DIM)[None, :]
        visible = tokens[None, :] <= positions[:, None]
        if WINDOW > 0:
            visible = visible & (tokens[None, :] > positions[:, None] - WINDOW)
        weights, decay, top, total = weigh(scores, visible, scale, top, total, MASKED)
        if QUANTIZED:
            weights *= load_scales(value_head, offsets, tokens, inside, BLOCK, HEAD_DIM)[None, :]
        sums = tl.dot(
            weights.to(query.dtype),
            values.to(query.dtype),
            sums * decay[:, None],
            input_precision="ieee",
        )
    return top, total, sums
