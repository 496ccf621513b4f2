"""activation(gate) * up in one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous
from kernels.gated_mul import GateActivation, gated_width
from kernels.triton.launch import on_device_of

_WIDTHS = (1024, 512, 256)
_MAX_IDLE = 0.1
"""Part of the lanes that may have nothing to do before a narrower tile is taken."""
_LANES_PER_WARP = 256
"""Eight values a thread: loads and stores of 16 bytes in bfloat16."""


# grid [num_tokens, cdiv(inner, WIDTH)]
@triton.jit
def _gated_mul(gate_up, out, inner, GELU: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < inner
    at = gate_up + row * 2 * inner + columns
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + inner, mask=inside, other=0.0).to(tl.float32)
    slope = gate
    if GELU:  # 0.5 * (1 + tanh(x)) = sigmoid(2 * x); 2 * sqrt(2 / pi) = 1.5957691
        slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    value = gate * tl.sigmoid(slope) * up
    tl.store(out + row * inner + columns, value.to(out.dtype.element_ty), mask=inside)


def gated_mul(gate_up: torch.Tensor, activation: GateActivation) -> torch.Tensor:
    """See kernels/reference/gated_mul.py."""
    num_tokens, inner = gate_up.shape[0], gated_width(gate_up.shape[1])
    require_contiguous("gate_up", gate_up)
    out = torch.empty((num_tokens, inner), dtype=gate_up.dtype, device=gate_up.device)
    if num_tokens and inner:
        width = tile_width(inner)
        with on_device_of(gate_up):
            _gated_mul[(num_tokens, triton.cdiv(inner, width))](
                gate_up,
                out,
                inner,
                GELU=activation is GateActivation.GELU_TANH,
                WIDTH=width,
                num_warps=width // _LANES_PER_WARP,
            )
    return out


def tile_width(inner: int) -> int:
    """The widest tile that leaves few lanes idle."""
    for width in _WIDTHS:
        if inner >= (1 - _MAX_IDLE) * width * triton.cdiv(inner, width):
            return width
    return _WIDTHS[-1]
