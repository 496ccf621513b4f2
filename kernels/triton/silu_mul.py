"""silu(gate) * up in one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require, require_contiguous
from kernels.triton.launch import on_device_of

_WIDTH = 1024


# grid [num_tokens, cdiv(inner, WIDTH)]
@triton.jit
def _silu_mul(gate_up, out, inner, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < inner
    at = gate_up + row * 2 * inner + columns
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + inner, mask=inside, other=0.0).to(tl.float32)
    value = gate * tl.sigmoid(gate) * up
    tl.store(out + row * inner + columns, value.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See kernels/reference/silu_mul.py."""
    num_tokens, width = gate_up.shape
    require(width % 2 == 0, f"gate_up has an odd width {width}")
    require_contiguous("gate_up", gate_up)
    out = torch.empty((num_tokens, width // 2), dtype=gate_up.dtype, device=gate_up.device)
    if num_tokens:
        with on_device_of(gate_up):
            grid = (num_tokens, triton.cdiv(width // 2, _WIDTH))
            _silu_mul[grid](gate_up, out, width // 2, WIDTH=_WIDTH)
    return out
