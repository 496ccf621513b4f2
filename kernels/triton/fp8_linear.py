"""Products of 8-bit floats (E4M3) with 8-bit floats: weights as stored, activations quantized on
the way, sums in float32.

    a scale per output, or one in all   torch._scaled_mm, a scale per row of activations
    a scale per block of 128 x 128      a kernel here, a scale per row and 128 inputs

Sources: Micikevicius et al., 2022; DeepSeek-V3 (2024), 3.3.2, for the blocks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require, require_dtype, require_same_device, require_shape
from kernels.triton.add_splits import add_splits
from kernels.triton.grouped_tiles import GroupedTiles, num_splits
from kernels.triton.launch import on_device_of
from kernels.triton.quantize_rows import quantize_rows
from kernels.weights import Fp8Weight

BLOCK = 128
_ALIGNMENT = 16  # of both sides, for torch._scaled_mm


def fp8_tiles(num_rows: int) -> GroupedTiles:
    """Status: counted, NOT YET MEASURED. Few rows split the inputs, as in grouped_tiles."""
    if num_rows <= 16:
        return GroupedTiles(rows=16, columns=64, num_warps=4, num_stages=4, may_split=True)
    if num_rows <= 64:
        return GroupedTiles(rows=64, columns=64, num_warps=4, num_stages=4, may_split=True)
    return GroupedTiles(rows=128, columns=128, num_warps=8, num_stages=3)


def has_fp8_form(weight: Fp8Weight) -> bool:
    """Whether `Fp8Linear` takes the weight; others are dequantized."""
    outputs, inputs = weight.shape
    rows, columns = weight.block
    if weight.block == (BLOCK, BLOCK):
        return inputs % BLOCK == 0
    return (
        columns >= inputs
        and (rows == 1 or rows >= outputs)
        and not (inputs % _ALIGNMENT or outputs % _ALIGNMENT)
    )


# grid [cdiv(out, COLUMNS), cdiv(num_rows, ROWS), num_splits]
@triton.jit(do_not_specialize=("num_rows", "tiles_per_split"))
def _multiply_blocks(
    x,
    x_scales,  # float32 [num_rows, in / BLOCK]
    values,
    scales,  # float32 [cdiv(out, BLOCK), in / BLOCK]
    bias,
    out,  # [num_rows, out]; of several splits float32 [num_splits, num_rows, out]
    num_rows,
    out_features,
    in_features,
    tiles_per_split,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    outputs = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows, split = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(2)
    output_inside, row_inside = outputs < out_features, rows < num_rows
    num_tiles = in_features // BLOCK
    inputs = tl.arange(0, BLOCK)
    from_x = x + rows.to(tl.int64)[:, None] * in_features + inputs[None, :]
    from_values = values + outputs.to(tl.int64)[:, None] * in_features + inputs[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for tile in range(
        split * tiles_per_split, tl.minimum((split + 1) * tiles_per_split, num_tiles)
    ):
        left = tl.load(from_x + tile * BLOCK, mask=row_inside[:, None], other=0.0)
        right = tl.load(from_values + tile * BLOCK, mask=output_inside[:, None], other=0.0)
        left_scale = tl.load(x_scales + rows * num_tiles + tile, mask=row_inside, other=0.0)
        at = scales + (outputs // BLOCK) * num_tiles + tile
        right_scale = tl.load(at, mask=output_inside, other=0.0)
        total += tl.dot(left, tl.trans(right)) * left_scale[:, None] * right_scale[None, :]
    mask = row_inside[:, None] & output_inside[None, :]
    place = rows.to(tl.int64) * out_features
    if IS_SPLIT:
        place += split.to(tl.int64) * num_rows * out_features
    if HAS_BIAS and not IS_SPLIT:
        total += tl.load(bias + outputs, mask=output_inside, other=0.0).to(tl.float32)[None, :]
    result = total.to(out.dtype.element_ty)
    tl.store(out + place[:, None] + outputs[None, :], result, mask=mask)


class Fp8Linear:
    """A `kernels.linear.Linear` of one byte per weight, for devices that `multiplies_fp8`."""

    def __init__(self, weight: Fp8Weight, bias: torch.Tensor | None = None) -> None:
        require(
            has_fp8_form(weight),
            f"a weight of {tuple(weight.shape)} with scales for blocks of {weight.block}; needed: "
            f"whole rows, the whole weight, or {BLOCK} x {BLOCK} with inputs in whole blocks",
        )
        if bias is not None:
            require_shape("bias", bias, (weight.shape[0],))
        self._values = weight.values.contiguous()
        self._in_blocks = weight.block == (BLOCK, BLOCK)
        scales = weight.scales if self._in_blocks else _per_output(weight)
        self._scales = scales.contiguous()
        self._input_scale = weight.input_scale
        self._bias = bias
        self._dtype = weight.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """See Linear."""
        outputs, inputs = self._values.shape
        return outputs, inputs

    @property
    def num_bytes(self) -> int:
        """See Linear."""
        held = self._values.nbytes + self._scales.nbytes
        return held + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See Linear."""
        return self._product(x, x.dtype)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """See Linear."""
        return self._product(x, torch.float32)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """See Linear."""
        values = self._values.view(torch.uint8)[ids].view(torch.float8_e4m3fn).float()
        if not self._in_blocks:
            return values * self._scales[0, ids][:, None]
        return values * self._scales[ids // BLOCK].repeat_interleave(BLOCK, 1)

    def _product(self, x: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        outputs, inputs = self._values.shape
        require_shape("x", x, (x.shape[0], inputs))
        require_dtype("x", x, self._dtype)
        require_same_device(x, self._values)
        if x.shape[0] == 0:
            return torch.empty((0, outputs), dtype=out_dtype, device=x.device)
        if self._in_blocks:
            return self._by_blocks(x, out_dtype)
        rows, scales = quantize_rows(x, inputs, self._input_scale)
        out = torch._scaled_mm(
            rows, self._values.T, scale_a=scales, scale_b=self._scales, out_dtype=torch.bfloat16
        )
        out = out if self._bias is None else out + self._bias
        return out.to(out_dtype)

    def _by_blocks(self, x: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        (num_rows, inputs), outputs = x.shape, self._values.shape[0]
        rows, scales = quantize_rows(x, BLOCK, self._input_scale)
        out = torch.empty((num_rows, outputs), dtype=out_dtype, device=x.device)
        tiles = fp8_tiles(num_rows)
        per_split = triton.cdiv(inputs // BLOCK, num_splits(tiles, outputs, inputs // BLOCK))
        splits = triton.cdiv(inputs // BLOCK, per_split)
        target = out
        if splits > 1:
            target = torch.empty((splits, *out.shape), dtype=torch.float32, device=x.device)
        with on_device_of(x):
            grid = (triton.cdiv(outputs, tiles.columns), triton.cdiv(num_rows, tiles.rows), splits)
            _multiply_blocks[grid](
                rows,
                scales,
                self._values,
                self._scales,
                self._bias,
                target,
                num_rows,
                outputs,
                inputs,
                per_split,
                BLOCK=BLOCK,
                ROWS=tiles.rows,
                COLUMNS=tiles.columns,
                IS_SPLIT=splits > 1,
                HAS_BIAS=self._bias is not None,
                num_warps=tiles.num_warps,
                num_stages=tiles.num_stages,
            )
            if splits > 1:
                add_splits(target, None, self._bias, out)
        return out


def _per_output(weight: Fp8Weight) -> torch.Tensor:
    """float32 [1, out]."""
    return weight.scales.expand(weight.shape[0], 1).T
