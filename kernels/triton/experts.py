"""The routed experts of a layer: two grouped products, and the sum over a row's experts.

gate_up   of every pair of a row and an expert (kernels/triton/expert_products.py)
down      of that
sum       over the pairs of a row, weighted, in float32           [num_rows, hidden]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.door import require, require_contiguous, require_dtype, require_same_device
from kernels.experts import Experts, HeldExperts, check_experts, check_matrices
from kernels.triton.align_pairs import align_pairs
from kernels.triton.expert_pairs import PairAssignment
from kernels.triton.expert_products import multiply_down, multiply_gate_up
from kernels.triton.expert_tiles import FEW_ROWS, expert_tiles
from kernels.triton.launch import on_device_of
from kernels.triton.stacked_weights import StackedWeights, chosen, stack
from kernels.weights import Weight

_SUM_COLUMNS = 1024


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


class TritonExperts:
    """A `kernels.experts.Experts`: plain weights, 4 or 8 bits in groups, or 8-bit floats."""

    def __init__(
        self, gate_up: Sequence[Weight], down: Sequence[Weight], held: HeldExperts | None = None
    ) -> None:
        held = check_matrices(gate_up, down, held)
        self._take(stack(gate_up), stack(down), held)

    def _take(self, gate_up: StackedWeights, down: StackedWeights, held: HeldExperts) -> None:
        self._gate_up, self._down, self.held = gate_up, down, held
        self._hidden_size, self._size = self._down.shape
        require(
            self._gate_up.shape == (2 * self._size, self._hidden_size),
            f"gate_up is {self._gate_up.shape} for a down of {self._down.shape}",
        )
        self._num_experts = len(held.ids)
        has_others = self._num_experts < held.num_experts
        self._places = held.places(down.values.device) if has_others else None

    @property
    def num_bytes(self) -> int:
        """See Experts."""
        return self._gate_up.num_bytes + self._down.num_bytes

    def with_experts(self, held: HeldExperts, gained: Sequence[Experts]) -> TritonExperts:
        """See Experts: a layer is one piece, and made anew."""
        sources = [each for each in (self, *gained) if isinstance(each, TritonExperts)]
        ids = [expert for each in sources for expert in each.held.ids]
        places = [ids.index(expert) for expert in held.ids]
        made = TritonExperts.__new__(TritonExperts)
        gate_up = chosen([each._gate_up for each in sources], places)
        made._take(gate_up, chosen([each._down for each in sources], places), held)
        return made

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
                self._run(x, self._held(ids), weights, out)
        return out

    def _held(self, ids: torch.Tensor) -> torch.Tensor:
        """Places among the experts that are held; the number of these for all others."""
        return ids if self._places is None else self._places[ids]

    def _run(
        self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor
    ) -> None:
        num_rows, num_pairs, has_others = x.shape[0], ids.numel(), self._places is not None
        is_packed = self._gate_up.bits < 16 or self._down.bits < 16
        tiles = expert_tiles(num_rows, num_pairs, self._num_experts, is_packed=is_packed)
        is_few = num_rows <= FEW_ROWS
        work = PairAssignment(
            ids=ids,
            tiles=tiles,
            sorted=None if is_few else align_pairs(ids, self._num_experts + has_others, tiles.rows),
            num_experts=self._num_experts,
            has_others=has_others,
        )
        inner = x.new_empty((num_pairs, self._size))
        make = x.new_zeros if has_others else x.new_empty  # nobody writes the pairs of others
        branches = make((num_pairs, self._hidden_size))
        self._launch_gate_up(x, work, inner)
        self._launch_down(inner, work, branches)
        grid = (num_rows, triton.cdiv(self._hidden_size, _SUM_COLUMNS))
        _sum_pairs[grid](
            branches, weights, out, ids.shape[1], self._hidden_size, COLUMNS=_SUM_COLUMNS
        )

    def _launch_gate_up(self, x: torch.Tensor, work: PairAssignment, out: torch.Tensor) -> None:
        weight = self._gate_up
        multiply_gate_up[(work.num_programs, triton.cdiv(self._size, work.tiles.columns))](
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

    def _launch_down(self, x: torch.Tensor, work: PairAssignment, out: torch.Tensor) -> None:
        weight = self._down
        multiply_down[(work.num_programs, triton.cdiv(self._hidden_size, work.tiles.columns))](
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
