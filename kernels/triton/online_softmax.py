"""The running softmax that all attention kernels share (Milakov and Gimelshein, 2018).

Exponentials are of base 2: the factor log2(e) is part of the scale, so that a score costs one
multiply-add and one instruction of the special function unit.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def empty_softmax(ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Maximum, sum and weighted values of rows that have seen nothing."""
    top = tl.full([ROWS], float("-inf"), tl.float32)
    return top, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)


@triton.jit
def weigh(scores, visible, scale, top, total, MASKED: tl.constexpr):
    """Scores [rows, tokens], not scaled, into the running maximum and sum.

    Returns weights [rows, tokens], the factor by which older sums shrink, maximum and sum.
    """
    if MASKED:
        scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1) * scale)
    shift = new_top
    if MASKED:  # a row that has seen nothing yet: keep (-inf) - (-inf) out of the exponent
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp2(scores * scale - shift[:, None])
    decay = tl.exp2(top - shift)
    return weights, decay, new_top, total * decay + tl.sum(weights, axis=1)


@triton.jit
def normalized(total, sums):
    """The weighted mean of what was seen; 0 where nothing was."""
    return sums / tl.where(total > 0.0, total, 1.0)[:, None]
