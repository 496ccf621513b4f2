"""Which program of the experts' products works on which pairs of a row and an expert.

    few rows   a program per chosen expert finds its rows among all pairs: nothing is sorted
    more       pairs are sorted into tiles of one expert first (kernels/triton/align_pairs.py)

The host neither waits nor knows who was chosen; every launch depends on shapes only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.triton.align_pairs import PairTiles
from kernels.triton.expert_tiles import ExpertTiles
from kernels.triton.launch import next_power_of_2
from kernels.triton.stacked_weights import StackedWeights


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
def tile_pairs(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAssignment:
    """Who works on which pairs, for both products of a call."""

    ids: torch.Tensor  # int64 [num_rows, k]
    tiles: ExpertTiles
    sorted: PairTiles | None
    """None: few rows."""
    num_experts: int
    has_others: bool = False
    """Whether there are pairs of experts that are not held, which have the id `num_experts`: then
    programs stand for experts, and these pairs have none."""

    @property
    def num_programs(self) -> int:
        """First side of the grids."""
        if self.sorted is not None:
            return self.sorted.experts.shape[0]
        return self.ids.numel() if self._is_by_pair else self.num_experts

    def arguments(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """ids, sorted pairs and their experts; the last two are not read when rows are few."""
        if self.sorted is None:
            return self.ids, self.ids, self.ids
        return self.ids, self.sorted.pairs, self.sorted.experts

    @property
    def _is_by_pair(self) -> bool:
        return self.ids.numel() <= self.num_experts and not self.has_others

    def constants(self, weight: StackedWeights) -> dict[str, int | bool]:
        """Of a launch with these weights."""
        return {
            "IS_FEW": self.sorted is None,
            "BY_PAIR": self._is_by_pair,
            "PAIRS": 1 if self.sorted is not None else next_power_of_2(self.ids.numel()),
            "BITS": weight.bits,
            "WIDTH": weight.width,
            "HAS_MINIMUMS": weight.minimums is not None,
            "ROWS": self.tiles.rows,
            "COLUMNS": self.tiles.columns,
            "num_warps": self.tiles.num_warps,
            "num_stages": self.tiles.num_stages,
        }
