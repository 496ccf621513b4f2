"""Products with weights in few bits."""

from __future__ import annotations

from kernels.triton import add_splits, fp8_linear, grouped_linear, quantize_rows
from kernels.triton.grouped_tiles import grouped_tiles
from tests.kernels.compile_case import BF16, F8, F16, F32, Case

WEIGHT = {"values": "*u8", "scales": F16, "minimums": F16, "factors": F32, "bias": BF16}


def _multiply(bits: int, width: int, num_rows: int, is_split: bool) -> Case:
    tiles = grouped_tiles(num_rows)
    return Case(
        name=f"grouped_product/{bits}-bit/{num_rows}-rows",
        kernel=grouped_linear._multiply,
        constants={
            "BITS": bits,
            "WIDTH": width,
            "ROWS": tiles.rows,
            "COLUMNS": tiles.columns,
            "IS_SPLIT": is_split,
            "HAS_BIAS": True,
        },
        pointers={"x": BF16, **WEIGHT, "out": F32 if is_split else BF16},
        aligned=("x_stride", "out_features"),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )


LOW_BIT = [
    _multiply(4, 128, 1, True),
    _multiply(4, 32, 1, True),
    _multiply(8, 128, 1, True),
    _multiply(4, 128, 64, True),
    _multiply(4, 128, 512, False),
    _multiply(8, 128, 512, False),
    Case(
        name="add_splits",
        kernel=add_splits._add_splits,
        constants={"COLUMNS": 1024, "HAS_FACTORS": True, "HAS_BIAS": True},
        pointers={"parts": F32, **WEIGHT, "out": BF16},
    ),
    *(
        Case(
            name=f"fp8_blocks/{num_rows}-rows",
            kernel=fp8_linear._multiply_blocks,
            constants={
                "BLOCK": 128,
                "ROWS": fp8_linear.fp8_tiles(num_rows).rows,
                "COLUMNS": fp8_linear.fp8_tiles(num_rows).columns,
                "IS_SPLIT": is_split,
                "HAS_BIAS": True,
            },
            pointers={
                "x": F8,
                "x_scales": F32,
                "values": F8,
                "scales": F32,
                "bias": BF16,
                "out": F32 if is_split else BF16,
            },
            aligned=("in_features", "out_features"),
            num_warps=fp8_linear.fp8_tiles(num_rows).num_warps,
            num_stages=fp8_linear.fp8_tiles(num_rows).num_stages,
        )
        for num_rows, is_split in ((1, True), (64, True), (512, False))
    ),
    Case(
        name="quantize_rows",
        kernel=quantize_rows._quantize_rows,
        constants={"TILE": 2048, "IS_STATIC": False},
        pointers={"x": BF16, "values": F8, "scales": F32},
        floats=("static_scale",),
        aligned=("x_stride",),
    ),
    Case(
        name="dequantize",
        kernel=grouped_linear._dequantize,
        constants={"BITS": 4, "WIDTH": 128, "COLUMNS": 64},
        pointers={**WEIGHT, "out": BF16},
    ),
]
