"""The interface of the gate of a feed-forward: activation(gate) * up."""

from __future__ import annotations

import enum
from collections.abc import Callable

import torch

from kernels.door import require


class GateActivation(enum.StrEnum):
    """What a gate goes through."""

    SILU = "silu"
    """SwiGLU (Shazeer, 2020)."""
    GELU_TANH = "gelu_tanh"
    """GEGLU (Shazeer, 2020), GELU by its tanh formula."""


GatedMulKernel = Callable[[torch.Tensor, GateActivation], torch.Tensor]
"""gate_up [num_rows, 2 * inner], gate first -> [num_rows, inner]; see
kernels/reference/gated_mul.py."""


def gated_width(gate_up_width: int) -> int:
    """The door of every gated_mul; returns inner."""
    require(gate_up_width % 2 == 0, f"gate_up has an odd width {gate_up_width}")
    return gate_up_width // 2
