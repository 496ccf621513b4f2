"""gelu(gate) * up, GELU by its tanh formula."""

from __future__ import annotations

import torch

from kernels.triton.gated_mul import gated_mul


def gelu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See kernels/reference/gelu_mul.py."""
    return gated_mul(gate_up, gelu=True)
