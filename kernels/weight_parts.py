"""Weights of every kind by runs of their columns, and with rows added. All of it is exact.

A group or a block that a run's end cuts is split: its scale is repeated for the finer ones.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from kernels.weights import Fp8Weight, GroupedWeight, Weight


def take_columns(weight: GroupedWeight, columns: range) -> GroupedWeight:
    """[out, in] -> [out, len(columns)], in groups that the run's ends do not cut."""
    if len(columns) == weight.shape[1]:
        return weight
    return replace(
        weight,
        values=weight.values[:, columns.start : columns.stop].contiguous(),
        scales=group_part(weight.scales, weight.group, columns),
        minimums=group_part(weight.minimums, weight.group, columns),
    )


def group_part(per_group: torch.Tensor, group: int, columns: range) -> torch.Tensor:
    """per_group [out, in / group] of all columns -> [out, len(columns) / g] of a run of them;
    g = gcd(group, first column, end)."""
    if len(columns) == per_group.shape[1] * group:
        return per_group
    fine = math.gcd(group, columns.start, columns.stop)
    return per_group[:, torch.arange(columns.start, columns.stop, fine) // group]


def block_part(
    scales: torch.Tensor, block: tuple[int, int], rows: range, columns: range
) -> tuple[torch.Tensor, tuple[int, int]]:
    """The scales of a part of a matrix of 8-bit floats, and the block that shares one."""
    row_index, height = _blocks(block[0], rows)
    column_index, width = _blocks(block[1], columns)
    return scales[row_index][:, column_index], (height, width)


def _blocks(size: int, run: range) -> tuple[torch.Tensor, int]:
    """Which of the blocks along one side each block of the part is of, and their size."""
    first, last = run.start // size, (run.stop - 1) // size
    if first == last:
        return torch.tensor([first]), len(run)
    fine = math.gcd(size, run.start)
    return torch.arange(run.start, run.stop, fine) // size, fine


def with_height(weight: Weight, height: int) -> Weight:
    """[out, in] -> [height, in]: rows of zeros below."""
    missing = height - weight.shape[0]
    if not missing:
        return weight
    if isinstance(weight, Fp8Weight):
        weight = weight.dequantize()
    if isinstance(weight, torch.Tensor):
        return F.pad(weight, (0, 0, 0, missing))
    return replace(
        weight,
        values=F.pad(weight.values, (0, 0, 0, missing)),
        scales=F.pad(weight.scales, (0, 0, 0, missing)),
        minimums=F.pad(weight.minimums, (0, 0, 0, missing)),
    )
