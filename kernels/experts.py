"""The interface of a layer's routed experts, and the rule by which a router chooses among them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.door import require, require_dtype, require_shape
from kernels.weights import Weight


class ScoreFunction(enum.StrEnum):
    """How logits become scores."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


class GroupRank(enum.StrEnum):
    """How a group of experts is ranked by its members' scores."""

    BEST = "best"
    """The highest (DeepSeek-V2)."""
    BEST_TWO = "best_two"
    """The sum of the two highest (DeepSeek-V3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRule:
    """`num_chosen` experts per row, all from the `num_chosen_groups` best groups.

    A group is a run of num_experts / num_groups neighbours.
    """

    num_chosen: int
    score: ScoreFunction = ScoreFunction.SOFTMAX
    normalizes_weights: bool = True
    """Whether the weights of the chosen are divided by their sum."""
    scaling_factor: float = 1.0
    """Multiplies the weights, normalized or not."""
    num_groups: int = 1
    num_chosen_groups: int = 1
    group_rank: GroupRank = GroupRank.BEST


@dataclass(frozen=True, slots=True)
class HeldExperts:
    """Which of a layer's experts are at a rank, in the order of its matrices."""

    ids: tuple[int, ...]
    num_experts: int
    """Of the layer."""

    def places(self, device: torch.device | str = "cpu") -> torch.Tensor:
        """int64 [num_experts]: of each its place among those held; of others, how many are."""
        places = torch.full((self.num_experts,), len(self.ids), dtype=torch.int64)
        places[list(self.ids)] = torch.arange(len(self.ids))
        return places.to(device)


class Experts(Protocol):
    """The gated feed-forwards of one layer, owned and packed."""

    @property
    def num_bytes(self) -> int:
        """Memory held."""

    @property
    def held(self) -> HeldExperts:
        """Which they are."""

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The sum over j of weights[:, j] * down_e(silu(gate_e(x)) * up_e(x)), e = ids[:, j].

        x        [num_rows, hidden]
        ids      int64 [num_rows, k], of a row all different
        weights  float32 [num_rows, k]

        Ids of experts that are not held here add nothing. Returns [num_rows, hidden] in the dtype
        of x; the sum itself is made in float32.
        """

    def with_experts(self, held: HeldExperts, gained: Sequence[Experts]) -> Experts:
        """Those of `held`, each of which is here or in `gained`, which the same kernel set has
        packed. This one stays as it is. Matrices are shared and not copied, but for sets that keep
        all of a layer in one piece."""


class PackExperts(Protocol):
    """Takes gate_up[e] [2 * size, hidden], gate first, and down[e] [hidden, size] of each expert;
    `held` says which these are. None: there are no others.

    The sequences may read a weight when it is asked for: each item is to be asked for once, packed
    and dropped, so that a layer is never held twice.
    """

    def __call__(
        self, gate_up: Sequence[Weight], down: Sequence[Weight], held: HeldExperts | None = None
    ) -> Experts: ...


RouteExpertsKernel = Callable[
    [torch.Tensor, torch.Tensor | None, RoutingRule], tuple[torch.Tensor, torch.Tensor]
]
"""See kernels/reference/route_experts.py."""


def check_routing(logits: torch.Tensor, bias: torch.Tensor | None, rule: RoutingRule) -> None:
    """The door of every route_experts."""
    require(logits.dim() == 2, f"logits have {logits.dim()} dimensions; needed: 2")
    require_dtype("logits", logits, torch.float32)
    num_experts = logits.shape[1]
    if bias is not None:
        require_dtype("bias", bias, torch.float32)
        require_shape("bias", bias, (num_experts,))
    require(
        num_experts % rule.num_groups == 0, f"{num_experts} experts in {rule.num_groups} groups"
    )
    require(
        1 <= rule.num_chosen_groups <= rule.num_groups,
        f"{rule.num_chosen_groups} groups chosen of {rule.num_groups}",
    )
    members = num_experts // rule.num_groups
    require(
        1 <= rule.num_chosen <= members * rule.num_chosen_groups,
        f"{rule.num_chosen} experts chosen from {rule.num_chosen_groups} groups of {members}",
    )
    require(
        rule.group_rank is GroupRank.BEST or rule.num_groups == 1 or members >= 2,
        "groups of one expert cannot be ranked by their best two",
    )


def check_experts(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, hidden_size: int
) -> None:
    """The door of every Experts; the ids themselves are trusted."""
    require_shape("x", x, (x.shape[0], hidden_size))
    require(ids.dim() == 2, f"ids have {ids.dim()} dimensions; needed: 2")
    require_dtype("ids", ids, torch.int64)
    require_dtype("weights", weights, torch.float32)
    require_shape("ids", ids, (x.shape[0], ids.shape[1]))
    require_shape("weights", weights, tuple(ids.shape))


def check_matrices(
    gate_up: Sequence[Weight], down: Sequence[Weight], held: HeldExperts | None
) -> HeldExperts:
    """The door of every PackExperts; which experts these are."""
    require(len(gate_up) == len(down) > 0, f"{len(gate_up)} gates for {len(down)} downs")
    if held is None:
        return HeldExperts(tuple(range(len(down))), len(down))
    require(len(held.ids) == len(down), f"{len(down)} matrices of {len(held.ids)} experts")
    return held
