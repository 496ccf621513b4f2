"""How decode attention cuts contexts into splits, and splits into work for a fixed grid.

A split's length follows from its sequence's own context (and window) only, so that a row has the
same bits in every batch. The programs of the grid are as many as the device holds at once; each
takes every n-th item of the list (sequence, split, head). A captured CUDA graph therefore serves
every context up to its bound, and no program starts only to find that there is nothing to do.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.triton.launch import num_processors
from kernels.triton.tuning import DecodeTiles


@triton.jit
def first_seen(context_len, WINDOW: tl.constexpr, CHUNK: tl.constexpr):
    """Where the last token's window begins, at the start of its chunk; 0 without a window."""
    first = context_len * 0
    if WINDOW > 0:
        first = tl.maximum(context_len - WINDOW, 0) // CHUNK * CHUNK
    return first


@triton.jit
def split_tokens(span, MIN_SPLIT: tl.constexpr, MAX_SPLITS: tl.constexpr, CHUNK: tl.constexpr):
    """Length of the splits of `span` tokens: whole chunks, at most MAX_SPLITS of them."""
    return tl.maximum(tl.cdiv(tl.cdiv(span, MAX_SPLITS), CHUNK) * CHUNK, MIN_SPLIT)


@triton.jit
def num_splits(
    context_len,
    WINDOW: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Of a context, or of each in a vector; an empty context has none."""
    span = context_len - first_seen(context_len, WINDOW, CHUNK)
    return tl.cdiv(span, split_tokens(span, MIN_SPLIT, MAX_SPLITS, CHUNK))


@triton.jit
def split_ends(
    context_lens,
    num_decodes,
    BATCH: tl.constexpr,
    WINDOW: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """int32 [BATCH]: splits of the sequences up to and including each."""
    lanes = tl.arange(0, BATCH)
    lens = tl.load(context_lens + lanes, mask=lanes < num_decodes, other=0)
    return tl.cumsum(num_splits(lens, WINDOW, MIN_SPLIT, MAX_SPLITS, CHUNK), axis=0)


@triton.jit
def locate(number, ends):
    """(sequence, split in it) of split `number` of all."""
    before = ends <= number
    seq = tl.sum(before.to(tl.int32), axis=0)
    return seq, number - tl.max(tl.where(before, ends, 0), axis=0)


@triton.jit
def tokens_of(
    split,
    context_len,
    WINDOW: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """(first token, end) of a split, and whether its context has no other."""
    begin = first_seen(context_len, WINDOW, CHUNK)
    length = split_tokens(context_len - begin, MIN_SPLIT, MAX_SPLITS, CHUNK)
    start = begin + split * length
    return start, tl.minimum(context_len, start + length), context_len - begin <= length


def bound_splits(max_context_len: int, window: int | None, tiles: DecodeTiles) -> int:
    """No context up to `max_context_len` has more splits."""
    span = max_context_len if window is None else min(max_context_len, window + tiles.chunk - 1)
    return max(1, min(tiles.max_splits, -(-span // tiles.min_split)))


def num_programs(num_items: int, device: torch.device, tiles: DecodeTiles) -> int:
    """Of the grid: as many as fit on the device at once, never more than there is work."""
    return max(1, min(num_items, num_processors(device) * tiles.programs_per_processor))
