"""How often a rank's steps have chosen each expert."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class ExpertPicks:
    """Of all layers, or of one. Every step counts up, also one that a device replays."""

    counts: torch.Tensor
    """int64 [num_layers, num_experts], or [num_experts] of a layer."""
    each: torch.Tensor
    """int64 [1]: what a pick adds, 1 or, while nothing is counted, 0."""

    @classmethod
    def none_yet(cls, shape: tuple[int, int], device: torch.device) -> ExpertPicks:
        """[num_layers, num_experts]"""
        counts = torch.zeros(shape, dtype=torch.int64, device=device)
        return cls(counts, torch.ones(1, dtype=torch.int64, device=device))

    def of_layer(self, layer: int) -> ExpertPicks:
        """The same memory."""
        return ExpertPicks(self.counts[layer], self.each)

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """What is computed meanwhile adds nothing."""
        with torch.inference_mode():
            self.each.zero_()
        try:
            yield
        finally:
            with torch.inference_mode():
                self.each.fill_(1)
