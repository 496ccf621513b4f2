"""Adapters beside the products of steps that decode: a program for each row and some ranks, then
for each row and some columns. An adapter's matrices are read once for each of its rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.adapters import AdapterPart

_RANKS = 16
_INPUTS = 256
_COLUMNS = 256


# grid [num_rows, cdiv(most ranks, RANKS)]
@triton.jit
def _shrink_row(
    x,  # [num_rows, num_inputs]
    slots,
    starts,
    ranks,
    down,  # [num_ranks, num_inputs]
    made,  # float32 [num_rows, most_ranks]
    num_inputs,
    most_ranks,
    RANKS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    own = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    slot = tl.load(slots + row)
    rank = tl.load(ranks + slot)
    if tl.program_id(1) * RANKS < rank:
        first = tl.load(starts + slot).to(tl.int64)
        sums = tl.zeros([RANKS], dtype=tl.float32)
        for begin in range(0, num_inputs, INPUTS):
            inputs = begin + tl.arange(0, INPUTS)
            inside = inputs < num_inputs
            values = tl.load(x + row * num_inputs + inputs, mask=inside, other=0.0)
            weights = tl.load(
                down + (first + own)[:, None] * num_inputs + inputs[None, :],
                mask=(own < rank)[:, None] & inside[None, :],
                other=0.0,
            )
            sums += tl.sum(weights.to(tl.float32) * values.to(tl.float32)[None, :], axis=1)
        tl.store(made + row * most_ranks + own, sums, mask=own < rank)


# grid [num_rows, cdiv(width, COLUMNS)]
@triton.jit
def _expand_row(
    made,  # float32 [num_rows, most_ranks]
    slots,
    starts,
    ranks,
    up,  # [num_ranks, width]
    out,  # the part's first column: [num_rows, out_width]
    width,
    out_width,
    most_ranks,
    RANKS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    slot = tl.load(slots + row)
    rank = tl.load(ranks + slot)
    if rank > 0:
        start = tl.load(starts + slot).to(tl.int64)
        sums = tl.zeros([COLUMNS], dtype=tl.float32)
        for begin in range(0, rank, RANKS):
            own = begin + tl.arange(0, RANKS)
            values = tl.load(made + row * most_ranks + own, mask=own < rank, other=0.0)
            weights = tl.load(
                up + (start + own)[:, None] * width + columns[None, :],
                mask=(own < rank)[:, None] & inside[None, :],
                other=0.0,
            )
            values = values.to(up.dtype.element_ty).to(tl.float32)
            sums += tl.sum(weights.to(tl.float32) * values[:, None], axis=0)
        at = out + row * out_width + columns
        before = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        tl.store(at, (before + sums).to(out.dtype.element_ty), mask=inside)


def add_to_rows(
    x: torch.Tensor,
    out: torch.Tensor,
    slots: torch.Tensor,
    starts: torch.Tensor,
    part: AdapterPart,
    made: torch.Tensor,
) -> None:
    """One part; `made` is float32 [num_rows, most ranks of an adapter], of use to nobody else."""
    num_rows, most_ranks = made.shape
    width = part.up.shape[1]
    _shrink_row[(num_rows, triton.cdiv(most_ranks, _RANKS))](
        x,
        slots,
        starts,
        part.lora_ranks,
        part.down,
        made,
        x.shape[1],
        most_ranks,
        RANKS=_RANKS,
        INPUTS=_INPUTS,
    )
    _expand_row[(num_rows, triton.cdiv(width, _COLUMNS))](
        made,
        slots,
        starts,
        part.lora_ranks,
        part.up,
        out[:, part.first_column :],
        width,
        out.shape[1],
        most_ranks,
        RANKS=_RANKS,
        COLUMNS=_COLUMNS,
    )
