"""What the two attention kernels share: keys and values of a chunk of tokens, and the running
softmax (Milakov and Gimelshein, 2018)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_rows(
    kv_head,  # pointer to K or V of this head in block 0
    block_table,
    tokens,
    end,
    block_stride,
    block_size,
    columns,
    HEAD_DIM: tl.constexpr,
):
    """[tokens, columns] of K or V; zero past `end` and past the head."""
    inside = tokens < end
    block = tl.load(block_table + tokens // block_size, mask=inside, other=0).to(tl.int64)
    rows = kv_head + block * block_stride + (tokens % block_size) * HEAD_DIM
    mask = inside[:, None] & (columns < HEAD_DIM)[None, :]
    return tl.load(rows[:, None] + columns[None, :], mask=mask, other=0.0)


@triton.jit
def absorb(query, keys, values, visible, scale, top, total, sums):
    """One chunk into the running maximum, sum and weighted values of each query row."""
    scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
    scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    # A row that has seen nothing yet: keep (-inf) - (-inf) out of the exponent.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp(scores - shift[:, None])
    decay = tl.exp(top - shift)
    total = total * decay + tl.sum(weights, axis=1)
    sums = sums * decay[:, None]
    sums += tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return new_top, total, sums
