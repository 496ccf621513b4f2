"""The gate of a feed-forward: activation(gate) * up."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.gated_mul import GateActivation, gated_width


def gated_mul(gate_up: torch.Tensor, activation: GateActivation) -> torch.Tensor:
    """gate_up [num_rows, 2 * inner], gate first -> [num_rows, inner], in float32, rounded once."""
    gated_width(gate_up.shape[-1])
    gate, up = gate_up.float().chunk(2, dim=-1)
    is_silu = activation is GateActivation.SILU
    value = F.silu(gate) if is_silu else F.gelu(gate, approximate="tanh")
    return (value * up).to(gate_up.dtype)
