"""Root-mean-square norm, alone and fused with the residual addition: one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous, require_dtype, require_same_device, require_shape
from kernels.triton.launch import next_power_of_2, on_device_of


# grid [num_tokens]
@triton.jit
def _rms_norm(
    branch, residual, weight, out, eps, hidden, HAS_BRANCH: tl.constexpr, WIDTH: tl.constexpr
):
    columns = tl.arange(0, WIDTH)
    inside = columns < hidden
    at = tl.program_id(0).to(tl.int64) * hidden + columns
    value = tl.load(residual + at, mask=inside, other=0.0)
    if HAS_BRANCH:
        value += tl.load(branch + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + at, value, mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / hidden + eps)
    normed = value * scale * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, normed.to(out.dtype.element_ty), mask=inside)


def rms_norm(
    residual: torch.Tensor, weight: torch.Tensor, eps: float, out_dtype: torch.dtype
) -> torch.Tensor:
    """See kernels/reference/rms_norm.py."""
    out = torch.empty(residual.shape, dtype=out_dtype, device=residual.device)
    _launch(None, residual, weight, eps, out)
    return out


def add_rms_norm(
    branch: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """See kernels/reference/rms_norm.py."""
    require_shape("branch", branch, tuple(residual.shape))
    require_contiguous("branch", branch)
    out = torch.empty_like(branch)
    _launch(branch, residual, weight, eps, out)
    return out


def _launch(
    branch: torch.Tensor | None,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> None:
    num_tokens, hidden = residual.shape
    require_dtype("residual", residual, torch.float32)
    require_contiguous("residual", residual)
    require_shape("weight", weight, (hidden,))
    require_same_device(residual, weight, out)
    if num_tokens == 0:
        return
    with on_device_of(residual):
        _rms_norm[(num_tokens,)](
            residual if branch is None else branch,
            residual,
            weight,
            out,
            eps,
            hidden,
            HAS_BRANCH=branch is not None,
            WIDTH=next_power_of_2(hidden),
        )
