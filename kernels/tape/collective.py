"""What the ranks of one replica do together; kernels know tensors, not how they travel."""

from __future__ import annotations

from typing import Protocol

import torch


class Collective(Protocol):
    """The ranks that share a replica's matrices. Every rank runs the same operations in one order.

    Called between kernels, on the thread and the stream of the step. All ranks end with equal bits.
    An implementation never waits without a limit; a lost rank is an error of its own, after which
    the step's activations and the blocks it wrote are worth nothing.
    """

    @property
    def world_size(self) -> int:
        """Ranks; 1 has nothing to do, and a tape then records nothing."""

    def all_reduce(self, rows: torch.Tensor) -> None:
        """Sums rows [num_rows, width] over the ranks, in place; contiguous."""

    def all_gather(self, rows: torch.Tensor) -> torch.Tensor:
        """[num_rows, width] of each rank -> [num_rows, world_size * width], rank by rank."""
