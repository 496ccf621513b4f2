"""Paged latents as tiles, and a running softmax over them: a row is the key of every head, and its
first columns are the value.

A row of 576 is no power of two: it is read as 512 columns, which serve twice, and 64.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.online_softmax import weigh
from kernels.triton.paged_rows import blocks_of, load_scales, load_tile


@triton.jit
def load_query(
    query,
    rows,
    inside,
    ROW_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    REST: tl.constexpr,
):
    """Rows of [.., ROW_DIM] in two tiles: the columns of the value, and the rest."""
    values, rest = tl.arange(0, WIDTH), VALUE_DIM + tl.arange(0, REST)
    at = query + rows.to(tl.int64)[:, None] * ROW_DIM
    first = tl.load(
        at + values[None, :], mask=inside[:, None] & (values < VALUE_DIM)[None, :], other=0.0
    )
    second = tl.load(
        at + rest[None, :], mask=inside[:, None] & (rest < ROW_DIM)[None, :], other=0.0
    )
    return first, second


@triton.jit
def attend_latents(
    query,  # [rows, WIDTH]
    query_rest,  # [rows, REST]
    kv_layer,
    table,
    start,
    end,
    positions,  # [rows]: the last token that each row sees
    scale,
    top,
    total,
    sums,  # [rows, WIDTH]
    block_stride,
    BLOCK: tl.constexpr,
    ROW_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    REST: tl.constexpr,
    CHUNK: tl.constexpr,
    QUANTIZED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Tokens [start, end) into the running softmax; see `paged_rows.attend_tokens`."""
    lanes, columns, rest = tl.arange(0, CHUNK), tl.arange(0, WIDTH), tl.arange(0, REST)
    blocks = blocks_of(table, start + lanes, end, BLOCK)
    for first in range(start, end, CHUNK):
        tokens = first + lanes
        inside = tokens < end
        offsets = blocks.to(tl.int64) * block_stride + (tokens % BLOCK) * ROW_DIM
        rows = kv_layer + offsets
        latents = load_tile(rows, columns, inside, VALUE_DIM, MASKED).to(query.dtype)
        others = load_tile(rows + VALUE_DIM, rest, inside, ROW_DIM - VALUE_DIM, MASKED)
        blocks = blocks_of(table, tokens + CHUNK, end, BLOCK)
        scores = tl.dot(query, tl.trans(latents), input_precision="ieee")
        others = tl.trans(others.to(query.dtype))
        scores = tl.dot(query_rest, others, scores, input_precision="ieee")
        if QUANTIZED:  # one scale for the row, as a key and as a value
            scales = load_scales(kv_layer, offsets, tokens, inside, BLOCK, ROW_DIM)
            scores *= scales[None, :]
        visible = tokens[None, :] <= positions[:, None]
        weights, decay, top, total = weigh(scores, visible, scale, top, total, MASKED)
        if QUANTIZED:
            weights *= scales[None, :]
        weights = weights.to(query.dtype)
        sums = tl.dot(weights, latents, sums * decay[:, None], input_precision="ieee")
    return top, total, sums
