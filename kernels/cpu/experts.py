"""Routed experts on a CPU: rows sorted by expert, then one packed feed-forward per expert in use.

    ids [num_rows, k] -> order: places (row, j) by expert | 3 3 | 5 | 9 9 9 |
    x[row of place]  -> gate-up, SiLU-mul, down by the expert of each run -> back to (row, j)

Experts that no row chose are not read; those of other ranks stand for a row of zeros. A row's
result has the same bits in every batch where those of the products have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from kernels.door import require
from kernels.experts import check_experts
from kernels.gated_mul import GateActivation, GatedMulKernel
from kernels.linear import Linear
from kernels.weights import Weight


class SortedExperts:
    """A `kernels.experts.Experts` over the packed matrices of a kernel set."""

    def __init__(
        self,
        pack_linear: Callable[[Weight], Linear],
        gated_mul: GatedMulKernel,
        gate_up: Sequence[Weight],
        down: Sequence[Weight],
        first_expert: int | None = None,
    ) -> None:
        require(len(gate_up) == len(down) > 0, f"{len(gate_up)} gates for {len(down)} downs")
        self._gated_mul, self._first_expert = gated_mul, first_expert
        self._experts = [  # one expert at a time: see PackExperts
            (pack_linear(first), pack_linear(second))
            for first, second in zip(gate_up, down, strict=True)
        ]

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return sum(first.num_bytes + second.num_bytes for first, second in self._experts)

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Experts."""
        check_experts(x, ids, weights, x.shape[1])
        by_expert, counts = self._own_pairs(ids.flatten())
        branches = self._branches(x[by_expert // ids.shape[1]], counts)
        if self._first_expert is None:
            places = torch.empty(ids.numel(), dtype=torch.int64)
        else:
            places = torch.full((ids.numel(),), len(by_expert))  # the row of zeros
            branches = F.pad(branches, (0, 0, 0, 1))
        places[by_expert] = torch.arange(len(by_expert))
        return _weighted_sum(branches, places.view(ids.shape), weights).to(x.dtype)

    def _own_pairs(self, ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """Places row * k + j by expert, of those that are held, and how many each of them has."""
        by_expert = ids.argsort(stable=True)
        if self._first_expert is None:
            return by_expert, torch.bincount(ids, minlength=len(self._experts)).tolist()
        first, end = self._first_expert, self._first_expert + len(self._experts)
        counts = torch.bincount(ids, minlength=end).tolist()
        return by_expert[sum(counts[:first]) : sum(counts[:end])], counts[first:end]

    def _branches(self, x: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Each run of rows through its expert: [num_pairs, hidden] -> the same shape."""
        out = torch.empty_like(x)
        start = 0
        for expert, count in enumerate(counts):
            if count:
                gate_up, down = self._experts[expert]
                run = slice(start, start + count)
                out[run] = down(self._gated_mul(gate_up(x[run]), GateActivation.SILU))
                start += count
        return out


def _weighted_sum(
    branches: torch.Tensor, places: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """float32 [num_rows, hidden]. Best expert first, each product rounded before it is added: a
    fused multiply-add here and none there would make bits depend on a row's place in the batch."""
    out = torch.zeros((len(places), branches.shape[1]), dtype=torch.float32)
    for rank in range(places.shape[1]):
        out += branches[places[:, rank]].float().mul_(weights[:, rank, None])
    return out
