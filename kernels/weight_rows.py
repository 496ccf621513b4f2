"""Weights of every kind by their rows: fused, permuted, moved. All of it is exact.

Fused QKV and gate-up matrices are made of parts whose groups, bits or scales may differ; the result
has the finest groups and the most bits among them, which changes no value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from kernels.door import require
from kernels.weights import Fp8Weight, GroupedWeight, Weight, plain


def concat_rows(weights: Sequence[Weight]) -> Weight:
    """Parts [out_i, in] -> [sum of out_i, in]; parts of different kinds are dequantized."""
    require(len(weights) > 0, "no weights to put together")
    if len(weights) == 1:
        return weights[0]
    grouped = [weight for weight in weights if isinstance(weight, GroupedWeight)]
    if len(grouped) == len(weights):
        return _concat_grouped(grouped)
    fp8 = [weight for weight in weights if isinstance(weight, Fp8Weight)]
    if len(fp8) == len(weights):
        return _concat_fp8(fp8)
    return torch.cat([plain(weight) for weight in weights])


def take_rows(weight: Weight, rows: torch.Tensor) -> Weight:
    """The rows that `rows`, int64 [n], names, in its order -> [n, in]."""
    if isinstance(weight, torch.Tensor):
        return weight[rows]
    if isinstance(weight, GroupedWeight):
        return replace(
            weight,
            values=weight.values[rows],
            scales=weight.scales[rows],
            minimums=weight.minimums[rows],
        )
    by_row = with_row_scales(weight)
    return replace(by_row, values=_fp8_rows(weight.values, rows), scales=by_row.scales[rows])


def moved(weight: Weight, device: torch.device, dtype: torch.dtype) -> Weight:
    """On `device`; a plain weight in `dtype`, others for activations of it."""
    if isinstance(weight, torch.Tensor):
        return weight.to(device=device, dtype=dtype)
    values, scales = weight.values.to(device), weight.scales.to(device)
    if isinstance(weight, Fp8Weight):
        return replace(weight, values=values, scales=scales, dtype=dtype)
    minimums = weight.minimums.to(device)
    return replace(weight, values=values, scales=scales, minimums=minimums, dtype=dtype)


def with_groups_of(weight: GroupedWeight, group: int) -> GroupedWeight:
    """Scales repeated so that `group` inputs, a divisor of the weight's own, share one."""
    require(weight.group % group == 0, f"groups of {weight.group} cannot be split into {group}")
    repeats = weight.group // group
    return replace(
        weight,
        scales=weight.scales.repeat_interleave(repeats, 1),
        minimums=weight.minimums.repeat_interleave(repeats, 1),
    )


def with_row_scales(weight: Fp8Weight) -> Fp8Weight:
    """Scales repeated so that every output has its own: blocks of [1, columns]."""
    rows, columns = weight.block
    scales = weight.scales.repeat_interleave(rows, 0)[: weight.shape[0]]
    return replace(weight, scales=scales, block=(1, columns))


def _concat_grouped(weights: list[GroupedWeight]) -> GroupedWeight:
    group = math.gcd(*(weight.group for weight in weights))
    parts = [with_groups_of(weight, group) for weight in weights]
    return replace(
        parts[0],
        values=torch.cat([part.values for part in parts]),
        scales=torch.cat([part.scales for part in parts]),
        minimums=torch.cat([part.minimums for part in parts]),
        bits=max(part.bits for part in parts),
    )


def _concat_fp8(weights: list[Fp8Weight]) -> Weight:
    if len({weight.block[1] for weight in weights}) > 1:
        return torch.cat([plain(weight) for weight in weights])
    parts = weights if _blocks_meet(weights) else [with_row_scales(weight) for weight in weights]
    return replace(
        parts[0],
        values=torch.cat([part.values.view(torch.uint8) for part in parts]).view(
            torch.float8_e4m3fn
        ),
        scales=torch.cat([part.scales for part in parts]),
        input_scale=_common_input_scale(weights),
    )


def _blocks_meet(weights: list[Fp8Weight]) -> bool:
    """Whether every part but the last ends where one of its blocks ends, all blocks alike."""
    rows, _ = weights[0].block
    same = all(weight.block == weights[0].block for weight in weights)
    return same and all(weight.shape[0] % rows == 0 for weight in weights[:-1])


def _common_input_scale(weights: list[Fp8Weight]) -> float | None:
    """The largest, so that no part's activations are clipped; None where one is dynamic."""
    scales = [weight.input_scale for weight in weights if weight.input_scale is not None]
    return max(scales) if len(scales) == len(weights) else None


def _fp8_rows(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Indexing by way of bytes: not every device indexes 8-bit floats."""
    return values.view(torch.uint8)[rows].view(torch.float8_e4m3fn)
