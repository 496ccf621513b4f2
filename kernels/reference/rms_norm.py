"""Root-mean-square norm (Zhang and Sennrich, 2019), alone and after a residual addition."""

from __future__ import annotations

import torch

from kernels.door import require_dtype, require_shape


def rms_norm(
    residual: torch.Tensor, weight: torch.Tensor, eps: float, out_dtype: torch.dtype
) -> torch.Tensor:
    """residual float32 [num_tokens, hidden], weight [hidden] -> out_dtype [num_tokens, hidden]."""
    require_dtype("residual", residual, torch.float32)
    require_shape("weight", weight, (residual.shape[1],))
    scale = torch.rsqrt(residual.square().mean(dim=-1, keepdim=True) + eps)
    return (residual * scale * weight.float()).to(out_dtype)


def add_rms_norm(
    branch: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Adds branch [num_tokens, hidden] to residual (float32, in place), then norms it.

    The result has the dtype of `branch`.
    """
    require_shape("branch", branch, tuple(residual.shape))
    residual += branch
    return rms_norm(residual, weight, eps, branch.dtype)
