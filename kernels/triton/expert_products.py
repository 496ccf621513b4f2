"""The two grouped products of a layer's experts.

    gate_up   x[row] @ gate.T, x[row] @ up.T -> silu(gate) * up      [num_pairs, size]
    down      that @ down.T                                           [num_pairs, hidden]

A program makes some outputs of the pairs that are its own (kernels/triton/expert_pairs.py).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.expert_pairs import tile_pairs
from kernels.triton.grouped_linear import tile_product


@triton.jit
def _product(
    x,  # pointers to the first input of each row
    inside,
    expert,
    values,
    scales,
    minimums,
    factors,
    outputs,
    output_inside,
    out_features,
    in_features,
    tiles_per_group,
    dtype: tl.constexpr,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """float32 [ROWS, COLUMNS]: rows times some outputs of one expert."""
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    if BITS == 16:
        inputs = tl.arange(0, WIDTH)
        start = values + (expert * out_features + outputs) * in_features
        for first in range(0, in_features, WIDTH):
            known = first + inputs < in_features
            left_mask = inside[:, None] & known[None, :]
            left = tl.load(x[:, None] + first + inputs[None, :], mask=left_mask, other=0.0)
            right_mask = output_inside[:, None] & known[None, :]
            right = tl.load(start[:, None] + first + inputs[None, :], mask=right_mask, other=0.0)
            total = tl.dot(left, tl.trans(right), total, input_precision="ieee")
    else:
        num_tiles = in_features // WIDTH
        for tile in range(0, num_tiles):
            at = (expert * num_tiles + tile) * out_features + outputs
            group = expert * (num_tiles // tiles_per_group) + tile // tiles_per_group
            total += tile_product(
                x + tile * WIDTH,
                inside,
                values + at * (WIDTH * BITS // 8),
                output_inside,
                scales + group * out_features + outputs,
                minimums + group * out_features + outputs,
                dtype,
                BITS,
                WIDTH,
                HAS_MINIMUMS,
            )
        factor = tl.load(factors + expert * out_features + outputs, mask=output_inside, other=0.0)
        total *= factor[None, :]
    return total


# grid [chosen experts or tiles, cdiv(size, COLUMNS)]
@triton.jit(do_not_specialize=("num_pairs",))
def multiply_gate_up(
    x,
    ids,
    pairs,
    experts,
    values,
    scales,
    minimums,
    factors,
    out,  # [num_pairs, size]
    num_pairs,
    num_experts,
    num_chosen,
    in_features,
    size,
    x_stride,
    tiles_per_group,
    IS_FEW: tl.constexpr,
    BY_PAIR: tl.constexpr,
    PAIRS: tl.constexpr,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    expert, mine = tile_pairs(
        ids, pairs, experts, num_pairs, num_experts, IS_FEW, BY_PAIR, PAIRS, ROWS
    )
    if tl.min(mine, axis=0) < num_pairs:
        inside = mine < num_pairs
        outputs = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        output_inside = outputs < size
        rows = x + (mine // num_chosen).to(tl.int64) * x_stride
        gate = _product(
            rows, inside, expert, values, scales, minimums, factors, outputs, output_inside,
            2 * size, in_features, tiles_per_group, x.dtype.element_ty,
            BITS, WIDTH, HAS_MINIMUMS, ROWS, COLUMNS,
        )  # fmt: skip
        up = _product(
            rows, inside, expert, values, scales, minimums, factors, outputs + size, output_inside,
            2 * size, in_features, tiles_per_group, x.dtype.element_ty,
            BITS, WIDTH, HAS_MINIMUMS, ROWS, COLUMNS,
        )  # fmt: skip
        result = (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty)
        at = out + mine.to(tl.int64)[:, None] * size + outputs[None, :]
        tl.store(at, result, mask=inside[:, None] & output_inside[None, :])


# grid [chosen experts or tiles, cdiv(hidden, COLUMNS)]
@triton.jit(do_not_specialize=("num_pairs",))
def multiply_down(
    x,  # [num_pairs, size]
    ids,
    pairs,
    experts,
    values,
    scales,
    minimums,
    factors,
    out,  # [num_pairs, hidden]
    num_pairs,
    num_experts,
    in_features,
    out_features,
    tiles_per_group,
    IS_FEW: tl.constexpr,
    BY_PAIR: tl.constexpr,
    PAIRS: tl.constexpr,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    expert, mine = tile_pairs(
        ids, pairs, experts, num_pairs, num_experts, IS_FEW, BY_PAIR, PAIRS, ROWS
    )
    if tl.min(mine, axis=0) < num_pairs:
        inside = mine < num_pairs
        outputs = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        output_inside = outputs < out_features
        rows = x + mine.to(tl.int64) * in_features
        result = _product(
            rows, inside, expert, values, scales, minimums, factors, outputs, output_inside,
            out_features, in_features, tiles_per_group, x.dtype.element_ty,
            BITS, WIDTH, HAS_MINIMUMS, ROWS, COLUMNS,
        )  # fmt: skip
        at = out + mine.to(tl.int64)[:, None] * out_features + outputs[None, :]
        mask = inside[:, None] & output_inside[None, :]
        tl.store(at, result.to(out.dtype.element_ty), mask=mask)
