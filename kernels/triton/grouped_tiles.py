"""How a product with low-bit weights is cut, by the number of rows.

Status: chosen by counting; NOT YET MEASURED on a GPU (`python -m benchmarks.bench_gpu low_bit`).
Few rows are bound by reading weights: every processor has to read, so inputs are split too. With
many rows the arithmetic counts, tiles grow, and from `DEQUANTIZE_ROWS` on the weight is written out
in the activations' dtype for cuBLAS.
"""

from __future__ import annotations

from dataclasses import dataclass

DEQUANTIZE_ROWS = 1024
"""Writing and reading a bfloat16 copy costs about 4.5 bytes a weight, 1.3 ps at 3.35 TB/s. What
cuBLAS gains over these tiles (0.85 against 0.6 of 989 TFLOP/s: assumed) is 1 fs per weight and
row."""
_PROGRAMS = 528
"""Four per processor of an H100: what a product for few rows is split into, at least."""
_MAX_SPLITS = 16
_MIN_TILES = 4
"""Tiles of inputs per split: enough to fill a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedTiles:
    """One program's share of [rows, outputs], and how the launch is compiled."""

    rows: int
    columns: int
    """Outputs."""
    num_warps: int
    num_stages: int
    may_split: bool = False


# Up to so many rows. Sixteen is the smallest side of a tensor-core product.
_TILES: dict[int, GroupedTiles] = {
    16: GroupedTiles(rows=16, columns=64, num_warps=4, num_stages=4, may_split=True),
    32: GroupedTiles(rows=32, columns=64, num_warps=4, num_stages=4, may_split=True),
    64: GroupedTiles(rows=64, columns=64, num_warps=4, num_stages=4, may_split=True),
}
_MANY = GroupedTiles(rows=128, columns=128, num_warps=8, num_stages=3)


def grouped_tiles(num_rows: int) -> GroupedTiles:
    """The smallest that holds all rows, or the largest."""
    return next((tiles for limit, tiles in _TILES.items() if num_rows <= limit), _MANY)


def num_splits(tiles: GroupedTiles, out_features: int, num_tiles: int) -> int:
    """Parts into which `num_tiles` tiles of inputs are divided. Depends on the weight and the class
    of rows only, so that a row's arithmetic changes in few places."""
    if not tiles.may_split:
        return 1
    columns = -(-out_features // tiles.columns)
    wanted = -(-_PROGRAMS // columns) * 16 // tiles.rows
    return max(1, min(wanted, _MAX_SPLITS, num_tiles // _MIN_TILES))
