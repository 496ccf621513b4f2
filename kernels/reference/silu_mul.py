"""The gate of a SwiGLU feed-forward (Shazeer, 2020): silu(gate) * up."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.door import require


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up [num_tokens, 2 * intermediate], gate first -> [num_tokens, intermediate]."""
    require(gate_up.shape[-1] % 2 == 0, f"gate_up has an odd width {gate_up.shape[-1]}")
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).to(gate_up.dtype)
