"""The gate of a GEGLU feed-forward (Shazeer, 2020): gelu(gate) * up, GELU by its tanh formula."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.door import require


def gelu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up [num_tokens, 2 * intermediate], gate first -> [num_tokens, intermediate]."""
    require(gate_up.shape[-1] % 2 == 0, f"gate_up has an odd width {gate_up.shape[-1]}")
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)
