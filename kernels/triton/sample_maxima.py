"""The maximum of each row of logits, and how a row is split among programs."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.reference import sample as reference

CHUNK = tl.constexpr(4096)
"""Logits that a program takes at a time; a split is some chunks."""
COLDEST = tl.constexpr(reference.COLDEST)
UNIT = tl.constexpr(float(1 << reference.WEIGHT_BITS))
"""The mass of the likeliest token."""


# grid [num_rows, num_splits]
@triton.jit(do_not_specialize=("split_size", "num_splits"))
def find_maxima(
    logits,
    part_maxima,
    part_ids,
    row_stride,
    vocab_size,
    split_size,
    num_splits,
):
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    top, place = float("-inf"), split * split_size
    for first in range(split * split_size, tl.minimum((split + 1) * split_size, vocab_size), CHUNK):
        at = first + tl.arange(0, CHUNK)
        value = tl.load(logits + row * row_stride + at, mask=at < vocab_size, other=float("-inf"))
        value = tl.where(value == value, value, float("inf"))  # a NaN shows in the maximum
        chunk_top = tl.max(value, axis=0)
        chunk_place = tl.min(tl.where(value == chunk_top, at, vocab_size - 1), axis=0)
        place = tl.where(chunk_top > top, chunk_place, place)
        top = tl.maximum(top, chunk_top)
    tl.store(part_maxima + row * num_splits + split, top)
    tl.store(part_ids + row * num_splits + split, place)


@triton.jit
def row_maximum(part_maxima, row, num_splits, SPLITS: tl.constexpr):
    """0 where it is not finite: such a row is not drawn."""
    splits = tl.arange(0, SPLITS)
    at = part_maxima + row * num_splits + splits
    maximum = tl.max(tl.load(at, mask=splits < num_splits, other=float("-inf")), axis=0)
    return tl.where(tl.abs(maximum) < float("inf"), maximum, 0.0)
