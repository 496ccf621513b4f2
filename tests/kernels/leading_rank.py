"""Two ranks on threads where no kernel computes: who leads, and who is routed where."""

from __future__ import annotations

import queue

import torch

from engine.model.ragged_batch import RaggedBatch
from engine.runner.ranks.own_sequences import OwnSequences
from kernels.experts import RoutingRule


class LeadingRunner:
    """Of ranks with sequences of their own the first, whose steps another one takes as well."""

    def __init__(self, own: OwnSequences, steps: queue.Queue[RaggedBatch | None]) -> None:
        self.copy_blocks, self._own, self._steps = own.copy_blocks, own, steps

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        self._steps.put(batch)
        return self._own.forward(batch)


class Routes:
    """A RouteExpertsKernel: the first experts for all, as for the one token of the warm-up, or any.
    Nothing is computed here that could say which."""

    def __init__(self) -> None:
        self.are_random = False

    def __call__(
        self, logits: torch.Tensor, bias: torch.Tensor | None, rule: RoutingRule
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.rand(logits.shape) if self.are_random else -torch.arange(logits.shape[1])
        ids = scores.expand(logits.shape).argsort(1, descending=True)[:, : rule.num_chosen]
        return ids.contiguous(), torch.ones(ids.shape)
