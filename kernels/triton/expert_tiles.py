"""How products with experts are cut, by the number of rows.

Status: chosen by counting; NOT YET MEASURED on a GPU (`python -m benchmarks.bench_gpu mixture`).
"""

from __future__ import annotations

from dataclasses import dataclass

FEW_ROWS = 64
"""Up to so many, every program finds the rows of its expert itself, all in one tile."""
_HIGH_TILE_PAIRS = 96
"""For an average expert, from which on tiles are higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTiles:
    """One program's share, and how the launch is compiled."""

    rows: int
    columns: int
    """Outputs."""
    num_warps: int
    num_stages: int


def expert_tiles(
    num_rows: int, num_pairs: int, num_experts: int, *, is_packed: bool = False
) -> ExpertTiles:
    """`num_pairs` is rows times experts per row.

    Few rows read weights: narrow tiles, so that the experts of one row keep every processor busy.
    Many rows: tiles about as high as the average expert has rows, so that little is padding.
    Packed weights (fewer than 16 bits) need registers to unpack: half as many outputs.
    """
    if num_rows <= 16:
        return ExpertTiles(rows=16, columns=32, num_warps=4, num_stages=4)
    if num_rows <= FEW_ROWS:
        rows = 32 if num_rows <= 32 else FEW_ROWS
        return ExpertTiles(rows=rows, columns=64, num_warps=rows // 8, num_stages=4)
    rows, columns = (
        64 if num_pairs < _HIGH_TILE_PAIRS * num_experts else 128,
        64 if is_packed else 128,
    )
    return ExpertTiles(rows=rows, columns=columns, num_warps=8, num_stages=3)


def pair_counts(num_experts: int, max_pairs: int) -> list[int]:
    """Numbers of rows with one expert each that need every kernel any number up to `max_pairs`
    does; `num_experts` are held. Kernels are compiled for powers of two of few pairs, for whether
    there are more of them than experts, and for the tiles of many."""
    few = [1 << power for power in range(FEW_ROWS.bit_length())]
    counts = {*few, num_experts, FEW_ROWS + 1, _HIGH_TILE_PAIRS * num_experts, max_pairs}
    return sorted(count for count in counts if 0 < count <= max_pairs)
