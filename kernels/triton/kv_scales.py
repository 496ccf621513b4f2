"""A row of a quantized pool: values of one byte and a float32 scale, as kernels/kv_rows.py says."""

from __future__ import annotations

import triton
import triton.language as tl

_ROUND = tl.constexpr(12582912.0)
"""1.5 * 2 ** 23: added and taken away again, it rounds a float32 to the nearest integer, ties to
even."""


@triton.jit
def row_scale(peak, largest):
    """The scale of a row whose largest magnitude is `peak`."""
    return tl.div_rn(peak, peak * 0.0 + largest)


@triton.jit
def quantized(value, scale, largest, ROUNDS: tl.constexpr):
    """value / scale within [-largest, largest], still float32; a scale of 0 leaves zeros.

    ROUNDS: to integers, for a conversion to int8; one to float8 rounds by itself.
    """
    scaled = tl.div_rn(value, tl.where(scale > 0.0, scale, 1.0))
    scaled = tl.minimum(tl.maximum(scaled, -largest), largest)
    if ROUNDS:
        scaled = (scaled + _ROUND) - _ROUND
    return scaled


@triton.jit
def scales_of(values):
    """Where scales begin, from a pointer to the first byte behind the values."""
    return values.to(tl.pointer_type(tl.float32), bitcast=True)
