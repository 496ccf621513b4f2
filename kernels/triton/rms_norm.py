"""Root-mean-square norm, alone and fused with the residual addition: one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous, require_dtype, require_same_device, require_shape
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.tuning import norm_tile


# grid [cdiv(num_tokens, ROWS)]
@triton.jit(do_not_specialize=("num_tokens",))
def _rms_norm(
    branch,
    residual,
    weight,
    out,
    eps,
    num_tokens,
    HIDDEN: tl.constexpr,
    HAS_BRANCH: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (rows < num_tokens)[:, None] & (columns < HIDDEN)[None, :]
    at = rows.to(tl.int64)[:, None] * HIDDEN + columns[None, :]
    scales = tl.load(weight + columns, mask=columns < HIDDEN, other=0.0).to(tl.float32)
    value = tl.load(residual + at, mask=inside, other=0.0)
    if HAS_BRANCH:
        value += tl.load(branch + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + at, value, mask=inside)
    mean_square = tl.sum(value * value, axis=1) / HIDDEN
    normed = value * tl.rsqrt(mean_square + eps)[:, None] * scales[None, :]
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
    tile = norm_tile(next_power_of_2(hidden))
    with on_device_of(residual):
        _rms_norm[(triton.cdiv(num_tokens, tile.rows),)](
            residual if branch is None else branch,
            residual,
            weight,
            out,
            eps,
            num_tokens,
            HIDDEN=hidden,
            HAS_BRANCH=branch is not None,
            ROWS=tile.rows,
            WIDTH=tile.width,
            num_warps=tile.num_warps,
        )
