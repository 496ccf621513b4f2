"""The routed experts of a layer: two grouped products, and the sum over a row's experts.

    few rows   a program per chosen expert finds its rows among all pairs: nothing is sorted
    more       pairs are sorted into tiles of one expert first (kernels/triton/align_pairs.py)

    gate_up   x[row] @ gate.T, x[row] @ up.T -> silu(gate) * up      [num_pairs, size]
    down      that @ down.T                                           [num_pairs, hidden]
    sum       over the pairs of a row, weighted, in float32           [num_rows, hidden]

The host neither waits nor knows who was chosen; every launch depends on shapes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.door import require, require_contiguous, require_dtype, require_same_device
from kernels.experts import check_experts
from kernels.triton.align_pairs import PairTiles, align_pairs
from kernels.triton.expert_tiles import FEW_ROWS, ExpertTiles, expert_tiles
from kernels.triton.grouped_linear import tile_product
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.stacked_weights import StackedWeights, stack
from kernels.weights import Weight

_SUM_COLUMNS = 1024


@triton.jit
def _pairs_of(ids, num_pairs, BY_PAIR: tl.constexpr, PAIRS: tl.constexpr, ROWS: tl.constexpr):
    """(expert, int32 [ROWS] pairs that chose it, num_pairs behind the last) of this program.

    BY_PAIR: programs stand for pairs, and the first pair of an expert does the work of all.
    """
    slot, every = tl.program_id(0), tl.arange(0, PAIRS)
    expert = slot.to(tl.int64)
    if BY_PAIR:
        expert = tl.load(ids + slot)
    chosen = tl.load(ids + every, mask=every < num_pairs, other=-1)
    mine = chosen == expert
    if BY_PAIR:
        mine = mine & (tl.min(tl.where(mine, every, PAIRS), axis=0) == slot)
    rank = tl.cumsum(mine.to(tl.int32), axis=0) - 1
    matches = mine[None, :] & (rank[None, :] == tl.arange(0, ROWS)[:, None])
    pairs = tl.min(tl.where(matches, every[None, :], num_pairs), axis=1)
    return expert, pairs


@triton.jit
def _tile_pairs(
    ids,
    pairs,
    experts,
    num_pairs,
    num_experts,
    IS_FEW: tl.constexpr,
    BY_PAIR: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """As `_pairs_of`; from the sorted tiles when rows are many."""
    if IS_FEW:
        expert, mine = _pairs_of(ids, num_pairs, BY_PAIR, PAIRS, ROWS)
    else:
        expert = tl.load(experts + tl.program_id(0)).to(tl.int64)
        mine = tl.load(pairs + tl.program_id(0) * ROWS + tl.arange(0, ROWS))
        mine = tl.where(expert < num_experts, mine, num_pairs)
    return expert, mine


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
def _gate_up(
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
    expert, mine = _tile_pairs(
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
def _down(
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
    expert, mine = _tile_pairs(
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


# grid [num_rows, cdiv(hidden, COLUMNS)]
@triton.jit
def _sum_pairs(branches, weights, out, num_chosen, hidden, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < hidden
    total = tl.zeros([COLUMNS], tl.float32)
    for place in range(0, num_chosen):
        pair = row * num_chosen + place
        branch = tl.load(branches + pair * hidden + columns, mask=inside, other=0.0)
        total += branch.to(tl.float32) * tl.load(weights + pair)
    tl.store(out + row * hidden + columns, total.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """Who works on which pairs, for both products of a call."""

    ids: torch.Tensor  # int64 [num_rows, k]
    tiles: ExpertTiles
    sorted: PairTiles | None
    """None: few rows."""
    num_experts: int

    @property
    def num_programs(self) -> int:
        """First side of the grids."""
        if self.sorted is not None:
            return self.sorted.experts.shape[0]
        return min(self.ids.numel(), self.num_experts)

    def arguments(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """ids, sorted pairs and their experts; the last two are not read when rows are few."""
        if self.sorted is None:
            return self.ids, self.ids, self.ids
        return self.ids, self.sorted.pairs, self.sorted.experts

    def constants(self, weight: StackedWeights) -> dict[str, int | bool]:
        """Of a launch with these weights."""
        return {
            "IS_FEW": self.sorted is None,
            "BY_PAIR": self.ids.numel() <= self.num_experts,
            "PAIRS": 1 if self.sorted is not None else next_power_of_2(self.ids.numel()),
            "BITS": weight.bits,
            "WIDTH": weight.width,
            "HAS_MINIMUMS": weight.minimums is not None,
            "ROWS": self.tiles.rows,
            "COLUMNS": self.tiles.columns,
            "num_warps": self.tiles.num_warps,
            "num_stages": self.tiles.num_stages,
        }


class TritonExperts:
    """A `kernels.experts.Experts`: plain weights, 4 or 8 bits in groups, or 8-bit floats."""

    def __init__(self, gate_up: Sequence[Weight], down: Sequence[Weight]) -> None:
        require(len(gate_up) == len(down) > 0, f"{len(gate_up)} gates for {len(down)} downs")
        self._gate_up, self._down = stack(gate_up), stack(down)
        self._hidden_size, self._size = self._down.shape
        require(
            self._gate_up.shape == (2 * self._size, self._hidden_size),
            f"gate_up is {self._gate_up.shape} for a down of {self._down.shape}",
        )
        self._num_experts = len(down)

    @property
    def num_bytes(self) -> int:
        """See Experts."""
        return self._gate_up.num_bytes + self._down.num_bytes

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Experts."""
        check_experts(x, ids, weights, self._hidden_size)
        require(x.stride(1) == 1, f"x has strides {x.stride()}; needed: dense rows")
        require_contiguous("ids", ids)
        require_contiguous("weights", weights)
        require_same_device(x, ids, weights, self._down.values)
        if self._down.bits == 16:
            require_dtype("x", x, self._down.values.dtype)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        if x.shape[0]:
            with on_device_of(x):
                self._run(x, ids, weights, out)
        return out

    def _run(
        self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor
    ) -> None:
        num_rows, num_pairs = x.shape[0], ids.numel()
        is_packed = self._gate_up.bits < 16 or self._down.bits < 16
        tiles = expert_tiles(num_rows, num_pairs, self._num_experts, is_packed=is_packed)
        is_few = num_rows <= FEW_ROWS
        work = _Assignment(
            ids=ids,
            tiles=tiles,
            sorted=None if is_few else align_pairs(ids, self._num_experts, tiles.rows),
            num_experts=self._num_experts,
        )
        inner = x.new_empty((num_pairs, self._size))
        branches = x.new_empty((num_pairs, self._hidden_size))
        self._launch_gate_up(x, work, inner)
        self._launch_down(inner, work, branches)
        grid = (num_rows, triton.cdiv(self._hidden_size, _SUM_COLUMNS))
        _sum_pairs[grid](
            branches, weights, out, ids.shape[1], self._hidden_size, COLUMNS=_SUM_COLUMNS
        )

    def _launch_gate_up(self, x: torch.Tensor, work: _Assignment, out: torch.Tensor) -> None:
        weight = self._gate_up
        _gate_up[(work.num_programs, triton.cdiv(self._size, work.tiles.columns))](
            x,
            *work.arguments(),
            *weight.arguments(),
            out,
            out.shape[0],
            self._num_experts,
            work.ids.shape[1],
            self._hidden_size,
            self._size,
            x.stride(0),
            weight.group // weight.width,
            **work.constants(weight),
        )

    def _launch_down(self, x: torch.Tensor, work: _Assignment, out: torch.Tensor) -> None:
        weight = self._down
        _down[(work.num_programs, triton.cdiv(self._hidden_size, work.tiles.columns))](
            x,
            *work.arguments(),
            *weight.arguments(),
            out,
            out.shape[0],
            self._num_experts,
            self._size,
            self._hidden_size,
            weight.group // weight.width,
            **work.constants(weight),
        )
