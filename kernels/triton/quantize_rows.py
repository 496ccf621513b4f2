"""Activations to 8-bit floats in one launch, with a scale per row or per run of a row's inputs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require
from kernels.triton.launch import next_power_of_2, on_device_of

E4M3_MAX = tl.constexpr(448.0)
_MAX_TILE = 2048
_SMALLEST = tl.constexpr(1e-12)


@triton.jit
def round_e4m3(value):
    """float32 of at most 448 -> the nearest float32 that E4M3 holds, ties to even.

    Its conversion is then exact: the interpreter's own loses the carry of a rounded mantissa.
    """
    exponent = (value.to(tl.int32, bitcast=True) >> 23) & 255
    exponent = tl.maximum(exponent, 127 - 6)  # below 2**-6 the steps stay the same
    # A number whose last place is the step of E4M3 there: three bits after the leading one.
    ruler = 1.5 * ((exponent + 20) << 23).to(tl.float32, bitcast=True)
    return (value + ruler) - ruler


# grid [num_rows, in / group]
@triton.jit
def _quantize_rows(
    x,
    values,
    scales,
    x_stride,
    in_features,
    group,
    static_scale,
    TILE: tl.constexpr,
    IS_STATIC: tl.constexpr,
):
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    source, columns = x + row * x_stride + piece * group, tl.arange(0, TILE)
    scale = static_scale
    if not IS_STATIC:
        largest = tl.zeros([TILE], tl.float32)
        for first in range(0, group, TILE):
            value = tl.load(source + first + columns, mask=first + columns < group, other=0.0)
            largest = tl.maximum(largest, tl.abs(value.to(tl.float32)))
        scale = tl.maximum(tl.max(largest, axis=0) / E4M3_MAX, _SMALLEST)
    target = values + row * in_features + piece * group
    for first in range(0, group, TILE):
        inside = first + columns < group
        value = tl.load(source + first + columns, mask=inside, other=0.0).to(tl.float32) / scale
        value = tl.minimum(tl.maximum(value, -E4M3_MAX), E4M3_MAX)
        result = round_e4m3(value).to(values.dtype.element_ty)
        tl.store(target + first + columns, result, mask=inside)
    tl.store(scales + row * (in_features // group) + piece, scale)


def quantize_rows(
    x: torch.Tensor, group: int, static_scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [num_rows, in] -> (float8_e4m3fn [num_rows, in], scales float32 [num_rows, in / group]).

    A value is about result * scale. With a `static_scale` every scale is that one, and what is
    beyond its reach is clipped.
    """
    num_rows, in_features = x.shape
    require(in_features % group == 0, f"{in_features} inputs in groups of {group}")
    require(x.stride(1) == 1, f"x has strides {x.stride()}; needed: dense rows")
    values = torch.empty((num_rows, in_features), dtype=torch.float8_e4m3fn, device=x.device)
    shape = (num_rows, in_features // group)
    scales = torch.empty(shape, dtype=torch.float32, device=x.device)
    if num_rows:
        with on_device_of(x):
            _quantize_rows[shape](
                x,
                values,
                scales,
                x.stride(0),
                in_features,
                group,
                1.0 if static_scale is None else static_scale,
                TILE=min(_MAX_TILE, next_power_of_2(group)),
                IS_STATIC=static_scale is not None,
            )
    return values, scales
