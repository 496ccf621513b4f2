"""The operations of ranks that split the rows of a step among them.

Each adds up, norms and routes a run of the rows; what all ranks multiply together is of all rows.
Runs follow from the number of rows: nobody is told them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.door import require
from kernels.tape.collective import ExpertCollective
from kernels.tape.operations import Operation
from kernels.tape.rows import Rows


def rows_of_ranks(num_rows: int, num_ranks: int) -> list[int]:
    """How many rows each rank has: runs as even as they go, also where rows are few."""
    ends = [num_rows * rank // num_ranks for rank in range(num_ranks + 1)]
    return [end - first for first, end in zip(ends, ends[1:], strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumOwnRows(Operation):
    """Sums rows over the ranks; each keeps its own run of the sum."""

    collective: ExpertCollective
    rows: Rows
    out: Rows

    def __post_init__(self) -> None:
        require(self.out.width == self.rows.width, f"own rows of width {self.out.width}")

    def summed(self, rows: torch.Tensor) -> torch.Tensor:
        """[num_rows, width] -> [own rows, width]"""
        counts = rows_of_ranks(len(rows), self.collective.world_size)
        return self.collective.reduce_scatter(rows, counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOwnRows(Operation):
    """This rank's run of rows that all have: a view of them."""

    collective: ExpertCollective
    rows: Rows
    out: Rows

    def taken(self, rows: torch.Tensor) -> torch.Tensor:
        """[num_rows, width] -> [own rows, width]"""
        counts = rows_of_ranks(len(rows), self.collective.world_size)
        return torch.split(rows, counts)[self.collective.rank]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRows(Operation):
    """The runs of all ranks, one below the other."""

    collective: ExpertCollective
    rows: Rows
    is_wanted: bool
    """Whether these are the rows with wanted logits, and not all of the step's."""
    out: Rows

    def gathered(self, rows: torch.Tensor, num_rows: int) -> torch.Tensor:
        """[own rows, width] -> [num_rows, width]"""
        counts = rows_of_ranks(num_rows, self.collective.world_size)
        widths = [count * rows.shape[1] for count in counts]
        flat = self.collective.all_gather(rows.reshape(1, -1), widths)
        return flat.view(num_rows, rows.shape[1])
