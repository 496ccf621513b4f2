"""Groups made wider, for kernels that take multiples of 32 inputs (Q6_K has groups of 16)."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernels.door import require
from kernels.weights import GroupedWeight

_BITS = 8
_STEPS = 2**_BITS - 1


def regroup(weight: GroupedWeight, group: int = 32) -> GroupedWeight:
    """[out, in] with `group` inputs per scale, a multiple of the weight's own, in 8 bits.

    Where the old groups agree in scale and minimum nothing changes. Elsewhere a value moves by at
    most half of a step, (largest - smallest value of the new group) / 510.
    """
    require(group % weight.group == 0, f"groups of {weight.group} do not fill groups of {group}")
    require(weight.shape[1] % group == 0, f"{weight.shape[1]} inputs in groups of {group}")
    if group == weight.group:
        return weight
    outputs, num_groups = weight.shape[0], weight.shape[1] // group
    old_scales = weight.scales.view(outputs, num_groups, -1)
    old_minimums = weight.minimums.view(outputs, num_groups, -1)
    agree = _all_equal(old_scales) & _all_equal(old_minimums)  # [out, num_groups]
    exact = replace(weight, dtype=torch.float32).dequantize().view(outputs, num_groups, group)
    low, high = exact.aminmax(dim=-1)
    scales = torch.where(agree, old_scales[..., 0], (high - low) / _STEPS)
    minimums = torch.where(agree, old_minimums[..., 0], low)
    steps = scales.masked_fill(scales == 0, 1.0)[..., None]
    moved = ((exact - minimums[..., None]) / steps).round_().clamp_(0, _STEPS).to(torch.uint8)
    kept = weight.values.view(outputs, num_groups, group)
    values = torch.where(agree[..., None], kept, moved).view(weight.shape)
    return replace(weight, values=values, scales=scales, minimums=minimums, bits=_BITS)


def _all_equal(groups: torch.Tensor) -> torch.Tensor:
    """[..., n] -> [...]."""
    return (groups == groups[..., :1]).all(-1)
