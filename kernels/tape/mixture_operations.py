"""The operations of a mixture of experts (`kernels/experts.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from kernels.door import require
from kernels.experts import Experts, RoutingRule
from kernels.placed_experts import PlacedExperts
from kernels.tape.collective import ExpertCollective
from kernels.tape.operations import Operation
from kernels.tape.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteExperts(Operation):
    """Chooses the experts of each row, and their weights."""

    makes: ClassVar[tuple[str, ...]] = ("ids", "weights")
    logits: Rows  # float32, num_experts
    bias: torch.Tensor | None  # float32 [num_experts]
    rule: RoutingRule
    ids: Rows  # int64, num_chosen
    weights: Rows  # float32, num_chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExperts(Operation):
    """The weighted sum of the chosen experts' feed-forwards."""

    experts: Experts
    x: Rows
    ids: Rows
    weights: Rows
    out: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeExperts(Operation):
    """As `RunExperts`, of ranks that split the rows: each row goes to the ranks that have its
    experts, and what these make of it comes back (`expert_exchange.py`)."""

    experts: PlacedExperts
    collective: ExpertCollective
    x: Rows
    ids: Rows
    weights: Rows
    out: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPicks(Operation):
    """Adds to each expert's count how often it was chosen, times `each`."""

    counts: torch.Tensor  # int64 [num_experts]
    each: torch.Tensor  # int64 [1]
    ids: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRows(Operation):
    """rows += addend."""

    rows: Rows
    addend: Rows

    def __post_init__(self) -> None:
        require(self.addend.width == self.rows.width, f"an addend of width {self.addend.width}")
