"""The results of a context's splits become one row: the second half of decode attention."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.triton.context_splits import num_splits
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.online_softmax import normalized
from kernels.triton.tuning import DecodeTiles

_PARTS = 16
"""Rows read at once; sums are taken in steps of so many, whatever the bound of the grid."""


@triton.jit
def store_split(
    top,
    total,
    sums,
    is_only,
    out,
    part_sums,
    part_logs,
    row,
    split,
    bound,
    columns,
    inside,
    WIDTH: tl.constexpr,
):
    """What a split has seen, for the rows that are `inside`: into `out` where its context has no
    other, else as a part for `merge_splits`. WIDTH: of a row of `out`."""
    mean = normalized(total, sums)
    mask = inside[:, None] & (columns < WIDTH)[None, :]
    if is_only:
        to = out + row[:, None] * WIDTH + columns[None, :]
        tl.store(to, mean.to(out.dtype.element_ty), mask=mask)
    else:
        part = row * bound + split
        tl.store(part_sums + part[:, None] * WIDTH + columns[None, :], mean, mask=mask)
        tl.store(part_logs + part, top + tl.log2(total), mask=inside)


# grid [num_rows, num_heads]
@triton.jit(do_not_specialize=("bound",))
def _merge_splits(
    part_sums,  # float32 [num_rows, num_heads, bound, HEAD_DIM], normalized
    part_logs,  # float32 [num_rows, num_heads, bound], base 2
    context_lens,
    out,
    num_heads,
    bound,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    WINDOW: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
    SPLITS: tl.constexpr,
    PARTS: tl.constexpr,
    QUERIES: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    context_len = tl.load(context_lens + row // QUERIES)
    used = num_splits(context_len, WINDOW, MIN_SPLIT, MAX_SPLITS, CHUNK)
    columns = tl.arange(0, WIDTH)
    inside = columns < HEAD_DIM
    if used != 1:  # a single split wrote its row itself
        first = (row * num_heads + head) * bound
        lanes = tl.arange(0, SPLITS)
        logs = tl.load(part_logs + first + lanes, mask=lanes < used, other=float("-inf"))
        top = tl.max(logs, axis=0)
        sums = tl.zeros([WIDTH], tl.float32)
        total = tl.zeros([PARTS], tl.float32)
        for start in range(0, used, PARTS):
            parts = start + tl.arange(0, PARTS)
            mask = parts < used
            log = tl.load(part_logs + first + parts, mask=mask, other=float("-inf"))
            weights = tl.exp2(log - top)
            at = part_sums + (first + parts)[:, None] * HEAD_DIM + columns[None, :]
            rows = tl.load(at, mask=mask[:, None] & inside[None, :], other=0.0)
            sums += tl.sum(rows * weights[:, None], axis=0)
            total += weights
        mean = sums / tl.maximum(tl.sum(total, axis=0), 1.0)  # an empty context: 0
        at = out + (row * num_heads + head) * HEAD_DIM + columns
        tl.store(at, mean.to(out.dtype.element_ty), mask=inside)


def merge_splits(
    part_sums: torch.Tensor,
    part_logs: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
    window: int,
    tiles: DecodeTiles,
    queries_each: int = 1,
) -> None:
    """Writes rows of out [num_tokens, num_heads * width] for contexts with other than one split.

    part_sums  float32 [num_rows, num_heads, bound, width], mean of each split's values
    part_logs  float32 [num_rows, num_heads, bound], log2 of the sum of its exponentials

    `queries_each`: rows that share a context and its splits.
    """
    num_rows, num_heads, bound, width = part_sums.shape
    with on_device_of(out):
        _merge_splits[(num_rows, num_heads)](
            part_sums,
            part_logs,
            context_lens,
            out,
            num_heads,
            bound,
            HEAD_DIM=width,
            WIDTH=next_power_of_2(width),
            WINDOW=window,
            MIN_SPLIT=tiles.min_split,
            MAX_SPLITS=tiles.max_splits,
            CHUNK=tiles.chunk,
            SPLITS=next_power_of_2(tiles.max_splits),
            PARTS=_PARTS,
            QUERIES=queries_each,
            num_warps=4,
        )
