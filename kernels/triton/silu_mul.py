"""silu(gate) * up."""

from __future__ import annotations

import torch

from kernels.triton.gated_mul import gated_mul


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See kernels/reference/silu_mul.py."""
    return gated_mul(gate_up, gelu=False)
