"""A layer's experts where the ranks of a group each have some, and may exchange them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from kernels.door import require
from kernels.experts import Experts, HeldExperts


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroups:
    """Where a layer's experts are. A group is a run of `sharers` ranks: each has some inner columns
    of all experts of the group."""

    of_experts: torch.Tensor  # int64 [num_experts]: the group that has it
    own: int
    """The group of this rank."""
    sharers: int


class PlacedExperts:
    """An `Experts` that becomes another one between two steps, and where all of the layer's are.

    A recording holds this one for as long as the model is loaded.
    """

    def __init__(self, experts: Experts, groups: ExpertGroups) -> None:
        self._experts = experts
        self.groups = groups

    @property
    def experts(self) -> Experts:
        """Which it is now."""
        return self._experts

    @property
    def num_bytes(self) -> int:
        """See Experts."""
        return self._experts.num_bytes

    @property
    def held(self) -> HeldExperts:
        """See Experts."""
        return self._experts.held

    def with_experts(self, held: HeldExperts, gained: Sequence[Experts]) -> Experts:
        """See Experts."""
        return self._experts.with_experts(held, gained)

    def become(self, experts: Experts, of_experts: torch.Tensor) -> None:
        """From the next step on; at all ranks between the same two steps."""
        groups = self.groups.of_experts
        require(of_experts.shape == groups.shape, f"a table of shape {tuple(of_experts.shape)}")
        self._experts = experts
        self.groups = replace(self.groups, of_experts=of_experts.to(groups.device))

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Experts."""
        return self._experts(x, ids, weights)
