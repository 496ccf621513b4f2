"""Routed experts on a CPU: rows sorted by expert, then one packed feed-forward per expert in use.

    ids [num_rows, k] -> order: places (row, j) by expert | 3 3 | 5 | 9 9 9 |
    x[row of place]  -> gate-up, SiLU-mul, down by the expert of each run -> back to (row, j)

Experts that no row chose are not read; those of other ranks stand for a row of zeros. A row's
result has the same bits in every batch where those of the products have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import torch
import torch.nn.functional as F

from kernels.experts import Experts, HeldExperts, check_experts, check_matrices
from kernels.gated_mul import GateActivation, GatedMulKernel
from kernels.linear import Linear
from kernels.reference.weighted_sum import weighted_sum
from kernels.weights import Weight

PackedExpert = tuple[Linear, Linear]
"""Gate-up, and down."""


class SortedExperts:
    """A `kernels.experts.Experts` over the packed matrices of a kernel set."""

    def __init__(
        self, experts: Sequence[PackedExpert], held: HeldExperts, gated_mul: GatedMulKernel
    ) -> None:
        """`experts` in the order of `held`."""
        self.held = held
        self._experts, self._gated_mul = experts, gated_mul
        has_others = len(held.ids) < held.num_experts
        self._places = held.places() if has_others else None

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return sum(first.num_bytes + second.num_bytes for first, second in self._experts)

    def matrices(self) -> Iterator[Linear]:
        """Of all of them."""
        return chain.from_iterable(self._experts)

    def with_experts(self, held: HeldExperts, gained: Sequence[Experts]) -> SortedExperts:
        """See Experts."""
        known: dict[int, PackedExpert] = {}
        for each in (self, *gained):
            assert isinstance(each, SortedExperts)
            known |= zip(each.held.ids, each._experts, strict=True)
        return SortedExperts([known[expert] for expert in held.ids], held, self._gated_mul)

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Experts."""
        check_experts(x, ids, weights, x.shape[1])
        by_expert, counts = self._own_pairs(ids.flatten())
        branches = self._branches(x[by_expert // ids.shape[1]], counts)
        if self._places is None:
            places = torch.empty(ids.numel(), dtype=torch.int64)
        else:
            places = torch.full((ids.numel(),), len(by_expert))  # the row of zeros
            branches = F.pad(branches, (0, 0, 0, 1))
        places[by_expert] = torch.arange(len(by_expert))
        return weighted_sum(branches, places.view(ids.shape), weights).to(x.dtype)

    def _own_pairs(self, ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """Places row * k + j by expert, of those that are held, and how many each of them has."""
        own = ids if self._places is None else self._places[ids]
        by_expert, num_held = own.argsort(stable=True), len(self._experts)
        counts = torch.bincount(own, minlength=num_held).tolist()[:num_held]
        return by_expert[: sum(counts)], counts

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


def pack_sorted(
    pack_linear: Callable[[Weight], Linear],
    gated_mul: GatedMulKernel,
    gate_up: Sequence[Weight],
    down: Sequence[Weight],
    held: HeldExperts | None = None,
) -> SortedExperts:
    """A `PackExperts`, given the first two."""
    held = check_matrices(gate_up, down, held)
    experts = [  # one expert at a time: see PackExperts
        (pack_linear(first), pack_linear(second))
        for first, second in zip(gate_up, down, strict=True)
    ]
    return SortedExperts(experts, held, gated_mul)
