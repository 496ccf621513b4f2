"""The interface of a layer's feed-forward, and the plain one: a gate, an up and a down matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from cluster.models.card import Activation
from kernels.cpu.tape import Rows, Tape
from kernels.linear import Linear


class FeedForward(Protocol):
    """One layer's: a gated MLP, or a mixture of experts."""

    @property
    def num_bytes(self) -> int:
        """Memory of the matrices."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [num_rows, hidden], normed -> [num_rows, hidden]."""


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """down(activation(gate) * up), with gate and up in one matrix."""

    gate_up: Linear
    down: Linear
    gated: Callable[[torch.Tensor], torch.Tensor]
    """[num_rows, 2 * inner] -> [num_rows, inner]: `KernelSet.silu_mul` or `gelu_mul`."""
    activation: Activation = Activation.SILU
    """Which of the two it is."""

    @property
    def num_bytes(self) -> int:
        """See FeedForward."""
        return self.gate_up.num_bytes + self.down.num_bytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See FeedForward."""
        return self.down(self.gated(self.gate_up(x)))

    def record(self, tape: Tape, x: Rows) -> Rows:
        """See engine/model/layers/recorded.py."""
        gate = tape.silu_mul if self.activation is Activation.SILU else tape.gelu_mul
        return tape.linear(self.down, gate(tape.linear(self.gate_up, x, "gate_up")), "branch")
