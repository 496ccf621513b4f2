"""Products with weights of 4 or 8 bits in groups: few rows split over the inputs, more in tiles,
very many by cuBLAS from a copy in the activations' dtype.

    out = (sum over tiles of inputs: scale * (x @ values.T) + minimum * sum(x)) * factor + bias

Values go to the tensor cores as they are: whole numbers up to 255 are exact in bfloat16.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.door import require, require_dtype, require_same_device, require_shape
from kernels.triton.add_splits import add_splits
from kernels.triton.grouped_tiles import DEQUANTIZE_ROWS, grouped_tiles, num_splits
from kernels.triton.grouped_values import MIN_WIDTH, GroupedValues, pack, tile_width
from kernels.triton.launch import on_device_of
from kernels.weights import GroupedWeight


@triton.jit
def biased(values, dtype: tl.constexpr):
    """Whole numbers below 16, plus `bias_of(dtype)`, in `dtype`: the digits are put into the bits
    of a float whose last place counts ones, where a conversion would take a slow unit."""
    if dtype == tl.bfloat16:
        result = (values.to(tl.int16) | 0x4300).to(tl.bfloat16, bitcast=True)
    elif dtype == tl.float16:
        result = (values.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True)
    else:
        result = values.to(dtype)
    return result


@triton.jit
def bias_of(dtype: tl.constexpr):
    """See `biased`."""
    if dtype == tl.bfloat16:
        result = 128.0
    elif dtype == tl.float16:
        result = 1024.0
    else:
        result = 0.0
    return result


@triton.jit
def tile_product(
    x,  # pointers to the first input of each row
    row_inside,
    values,  # pointers to the first byte of each output
    output_inside,
    scales,  # pointers to the scale of each output
    minimums,
    dtype: tl.constexpr,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_MINIMUMS: tl.constexpr,
):
    """float32 [rows, outputs]: one tile of inputs."""
    if BITS == 4:
        half = tl.arange(0, WIDTH // 2)
        low_x = tl.load(x[:, None] + half[None, :], mask=row_inside[:, None], other=0.0)
        high_x = tl.load(
            x[:, None] + WIDTH // 2 + half[None, :], mask=row_inside[:, None], other=0.0
        )
        both = tl.load(values[:, None] + half[None, :], mask=output_inside[:, None], other=0)
        low, high = biased(both & 15, dtype), biased(both >> 4, dtype)
        product = tl.dot(low_x, tl.trans(low), input_precision="ieee")
        product = tl.dot(high_x, tl.trans(high), product, input_precision="ieee")
        sums = tl.sum(low_x.to(tl.float32), axis=1) + tl.sum(high_x.to(tl.float32), axis=1)
        over = bias_of(dtype)
    else:
        whole = tl.arange(0, WIDTH)
        x_tile = tl.load(x[:, None] + whole[None, :], mask=row_inside[:, None], other=0.0)
        tile = tl.load(values[:, None] + whole[None, :], mask=output_inside[:, None], other=0.0)
        product = tl.dot(x_tile, tl.trans(tile.to(dtype)), input_precision="ieee")
        sums = tl.sum(x_tile.to(tl.float32), axis=1)
        over = 0.0
    scale = tl.load(scales, mask=output_inside, other=0.0).to(tl.float32)
    total = product * scale[None, :]
    if HAS_MINIMUMS:
        minimum = tl.load(minimums, mask=output_inside, other=0.0).to(tl.float32)
        total += sums[:, None] * (minimum - over * scale)[None, :]
    return total


# grid [cdiv(out, COLUMNS), cdiv(num_rows, ROWS), num_splits]
@triton.jit(do_not_specialize=("num_rows", "num_tiles", "tiles_per_split"))
def _multiply(
    x,
    values,
    scales,
    minimums,
    factors,
    bias,
    out,  # [num_rows, out]; of several splits float32 [num_splits, num_rows, out], unscaled
    num_rows,
    out_features,
    x_stride,
    num_tiles,
    tiles_per_split,
    tiles_per_group,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    outputs = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows, split = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(2)
    output_inside, row_inside = outputs < out_features, rows < num_rows
    row_start = x + rows.to(tl.int64) * x_stride
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    end = tl.minimum((split + 1) * tiles_per_split, num_tiles)
    for tile in range(split * tiles_per_split, end):
        at = (tile * out_features + outputs.to(tl.int64)) * (WIDTH * BITS // 8)
        group = (tile // tiles_per_group) * out_features + outputs
        total += tile_product(
            row_start + tile * WIDTH,
            row_inside,
            values + at,
            output_inside,
            scales + group,
            minimums + group,
            x.dtype.element_ty,
            BITS,
            WIDTH,
            True,
        )
    mask = row_inside[:, None] & output_inside[None, :]
    if IS_SPLIT:
        place = (split * num_rows + rows).to(tl.int64) * out_features
        tl.store(out + place[:, None] + outputs[None, :], total, mask=mask)
    else:
        total *= tl.load(factors + outputs, mask=output_inside, other=0.0)[None, :]
        if HAS_BIAS:
            total += tl.load(bias + outputs, mask=output_inside, other=0.0).to(tl.float32)[None, :]
        place = rows.to(tl.int64) * out_features
        result = total.to(out.dtype.element_ty)
        tl.store(out + place[:, None] + outputs[None, :], result, mask=mask)


# grid [num_tiles, cdiv(out, COLUMNS)]
@triton.jit
def _dequantize(
    values,
    scales,
    minimums,
    factors,
    out,  # [out, in]
    out_features,
    in_features,
    tiles_per_group,
    BITS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    tile, outputs = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = outputs < out_features
    group = (tile // tiles_per_group) * out_features + outputs
    factor = tl.load(factors + outputs, mask=inside, other=0.0)
    scale = tl.load(scales + group, mask=inside, other=0.0).to(tl.float32) * factor
    minimum = tl.load(minimums + group, mask=inside, other=0.0).to(tl.float32) * factor
    NUM_BYTES: tl.constexpr = WIDTH * BITS // 8
    places = tl.arange(0, NUM_BYTES)
    at = (tile.to(tl.int64) * out_features + outputs) * NUM_BYTES
    mask = inside[:, None] & (places < NUM_BYTES)[None, :]
    both = tl.load(values + at[:, None] + places[None, :], mask=mask, other=0)
    to = out + outputs.to(tl.int64)[:, None] * in_features + tile * WIDTH + places[None, :]
    first = both & 15 if BITS == 4 else both
    weight = first.to(tl.float32) * scale[:, None] + minimum[:, None]
    tl.store(to, weight.to(out.dtype.element_ty), mask=mask)
    if BITS == 4:
        weight = (both >> 4).to(tl.float32) * scale[:, None] + minimum[:, None]
        tl.store(to + WIDTH // 2, weight.to(out.dtype.element_ty), mask=mask)


class TritonGroupedLinear:
    """A `kernels.linear.Linear` that keeps 4 or 8 bits per weight."""

    def __init__(self, weight: GroupedWeight, bias: torch.Tensor | None = None) -> None:
        require(
            tile_width(weight) >= MIN_WIDTH,
            f"groups of {weight.group} inputs; needed: a multiple of {MIN_WIDTH} "
            "(kernels.regroup makes them)",
        )
        if bias is not None:
            require_shape("bias", bias, (weight.shape[0],))
            require_same_device(weight.values, bias)
        self._weight = pack(weight)
        self._bias = bias
        self._dtype = weight.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """See Linear."""
        return self._weight.shape

    @property
    def num_bytes(self) -> int:
        """See Linear."""
        return self._weight.num_bytes + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See Linear. Rows of `x` may be strided."""
        return self._product(x, x.dtype)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """See Linear."""
        return self._product(x, torch.float32)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """See Linear."""
        return self._weight.rows(ids)

    def _product(self, x: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        out_features, in_features = self._weight.shape
        require_shape("x", x, (x.shape[0], in_features))
        require_dtype("x", x, self._dtype)
        require(x.stride(1) == 1, f"x has strides {x.stride()}; needed: dense rows")
        require_same_device(x, self._weight.values)
        if x.shape[0] >= DEQUANTIZE_ROWS:
            return F.linear(x, dequantize(self._weight, x.dtype), self._bias).to(out_dtype)
        out = torch.empty((x.shape[0], out_features), dtype=out_dtype, device=x.device)
        if x.shape[0]:
            with on_device_of(x):
                _launch(x, self._weight, self._bias, out)
        return out


def dequantize(weight: GroupedValues, dtype: torch.dtype) -> torch.Tensor:
    """[out, in] in `dtype`."""
    out_features, in_features = weight.shape
    out = torch.empty((out_features, in_features), dtype=dtype, device=weight.values.device)
    columns = 64
    with on_device_of(out):
        _dequantize[(weight.values.shape[0], triton.cdiv(out_features, columns))](
            weight.values,
            weight.scales,
            weight.minimums,
            weight.factors,
            out,
            out_features,
            in_features,
            weight.group // weight.width,
            BITS=weight.bits,
            WIDTH=weight.width,
            COLUMNS=columns,
        )
    return out


def _launch(
    x: torch.Tensor, weight: GroupedValues, bias: torch.Tensor | None, out: torch.Tensor
) -> None:
    num_rows, out_features = out.shape
    num_tiles, tiles = weight.values.shape[0], grouped_tiles(num_rows)
    splits = num_splits(tiles, out_features, num_tiles)
    per_split = triton.cdiv(num_tiles, splits)
    splits = triton.cdiv(num_tiles, per_split)
    target = out
    if splits > 1:
        target = torch.empty((splits, *out.shape), dtype=torch.float32, device=out.device)
    grid = (triton.cdiv(out_features, tiles.columns), triton.cdiv(num_rows, tiles.rows), splits)
    _multiply[grid](
        x,
        weight.values,
        weight.scales,
        weight.minimums,
        weight.factors,
        bias,
        target,
        num_rows,
        out_features,
        x.stride(0),
        num_tiles,
        per_split,
        weight.group // weight.width,
        BITS=weight.bits,
        WIDTH=weight.width,
        ROWS=tiles.rows,
        COLUMNS=tiles.columns,
        IS_SPLIT=splits > 1,
        HAS_BIAS=bias is not None,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    if splits > 1:
        add_splits(target, weight.factors, bias, out)
