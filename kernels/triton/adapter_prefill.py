"""Adapters beside the products of steps with prompts: tiles of rows by the tensor cores. A tile
goes through the adapters of its rows one after the other; rows of a prompt have the same one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.adapters import AdapterPart

_ROWS = 32
_RANKS = 16
_INPUTS = 64
_COLUMNS = 64


# grid [cdiv(num_rows, ROWS), cdiv(most ranks, RANKS)]
@triton.jit(do_not_specialize=("num_rows",))
def _shrink_tile(
    x,  # [num_rows, num_inputs]
    slots,
    starts,
    ranks,
    down,  # [num_ranks, num_inputs]
    made,  # float32 [num_rows, most_ranks]
    num_rows,
    num_inputs,
    most_ranks,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    own = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    left = tl.load(slots + rows, mask=rows < num_rows, other=0)
    slot = tl.max(left, axis=0)
    while slot > 0:
        is_its = left == slot
        first, rank = tl.load(starts + slot).to(tl.int64), tl.load(ranks + slot)
        if tl.program_id(1) * RANKS < rank:
            sums = tl.zeros([ROWS, RANKS], dtype=tl.float32)
            for begin in range(0, num_inputs, INPUTS):
                inputs = begin + tl.arange(0, INPUTS)
                inside = inputs < num_inputs
                values = tl.load(
                    x + rows[:, None] * num_inputs + inputs[None, :],
                    mask=is_its[:, None] & inside[None, :],
                    other=0.0,
                )
                weights = tl.load(
                    down + (first + own)[:, None] * num_inputs + inputs[None, :],
                    mask=(own < rank)[:, None] & inside[None, :],
                    other=0.0,
                )
                sums = tl.dot(values, tl.trans(weights), sums, input_precision="ieee")
            at = made + rows[:, None] * most_ranks + own[None, :]
            tl.store(at, sums, mask=is_its[:, None] & (own < rank)[None, :])
        left = tl.where(is_its, 0, left)
        slot = tl.max(left, axis=0)


# grid [cdiv(num_rows, ROWS), cdiv(width, COLUMNS)]
@triton.jit(do_not_specialize=("num_rows",))
def _expand_tile(
    made,  # float32 [num_rows, most_ranks]
    slots,
    starts,
    ranks,
    up,  # [num_ranks, width]
    out,  # the part's first column: [num_rows, out_width]
    num_rows,
    width,
    out_width,
    most_ranks,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    left = tl.load(slots + rows, mask=rows < num_rows, other=0)
    slot = tl.max(left, axis=0)
    while slot > 0:
        is_its = left == slot
        start, rank = tl.load(starts + slot).to(tl.int64), tl.load(ranks + slot)
        if rank > 0:
            sums = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
            for begin in range(0, rank, RANKS):
                own = begin + tl.arange(0, RANKS)
                values = tl.load(
                    made + rows[:, None] * most_ranks + own[None, :],
                    mask=is_its[:, None] & (own < rank)[None, :],
                    other=0.0,
                )
                weights = tl.load(
                    up + (start + own)[:, None] * width + columns[None, :],
                    mask=(own < rank)[:, None] & inside[None, :],
                    other=0.0,
                )
                values = values.to(up.dtype.element_ty)
                sums = tl.dot(values, weights, sums, input_precision="ieee")
            at = out + rows[:, None] * out_width + columns[None, :]
            is_written = is_its[:, None] & inside[None, :]
            before = tl.load(at, mask=is_written, other=0.0).to(tl.float32)
            tl.store(at, (before + sums).to(out.dtype.element_ty), mask=is_written)
        left = tl.where(is_its, 0, left)
        slot = tl.max(left, axis=0)


def add_to_tiles(
    x: torch.Tensor,
    out: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    part: AdapterPart,
    made: torch.Tensor,
) -> None:
    """As adapter_decode.add_to_rows."""
    num_rows, most_ranks = made.shape
    width, num_tiles = part.up.shape[1], triton.cdiv(num_rows, _ROWS)
    _shrink_tile[(num_tiles, triton.cdiv(most_ranks, _RANKS))](
        x,
        slots,
        starts,
        part.lora_ranks,
        part.down,
        made,
        num_rows,
        x.shape[1],
        most_ranks,
        ROWS=_ROWS,
        RANKS=_RANKS,
        INPUTS=_INPUTS,
    )
    _expand_tile[(num_tiles, triton.cdiv(width, _COLUMNS))](
        made,
        slots,
        starts,
        part.lora_ranks,
        part.up,
        out[:, part.first_column :],
        num_rows,
        width,
        out.shape[1],
        most_ranks,
        ROWS=_ROWS,
        RANKS=_RANKS,
        COLUMNS=_COLUMNS,
    )
