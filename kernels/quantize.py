"""Plain matrices to low-bit groups: symmetric bytes, or 4 bits with a searched scale and minimum.

Scales have 11 significant bits, as a float16 has, so that a kernel may store them in two bytes.
"""

from __future__ import annotations

from typing import Final

import torch

from kernels.door import require
from kernels.weights import GroupedWeight

_ROWS_AT_ONCE: Final = 1024
_LARGEST_BYTE: Final = 127
_CENTRE: Final = 128
_LEVELS: Final = 15
"""Steps between the smallest and the largest 4-bit value."""
_RANGES: Final = (1.0, 0.95, 0.9)
"""Parts of a group's range that the 15 steps are tried over. Squared error beside smallest to
largest alone, Gaussian weights in groups of 32 and 128: 0.87 and 0.88; with (0.95,) 0.90 and 0.90;
with nine from 1.0 to 0.6 0.87 and 0.88."""


def quantize_groups(
    weight: torch.Tensor, *, bits: int, group: int = 32, dtype: torch.dtype
) -> GroupedWeight:
    """weight [out, in], any float, to 8 or 4 bits per value and a scale per `group` inputs.

    8 bits: at most half a step off, (largest magnitude of the group) / 254. 4 bits: the least
    squared error of the ranges tried. `dtype` is that of the activations.
    """
    require(weight.dim() == 2, f"weight has {weight.dim()} dimensions; needed: 2")
    require(bits in (4, 8), f"{bits} bits; needed: 4 or 8")
    require(
        group > 0 and weight.shape[1] % group == 0, f"{weight.shape[1]} inputs in groups of {group}"
    )
    quantize = _to_bytes if bits == 8 else _to_nibbles
    parts = [
        quantize(rows.float().view(rows.shape[0], -1, group))
        for rows in torch.split(weight.contiguous(), _ROWS_AT_ONCE)
    ]
    values, scales, minimums = (torch.cat(part) for part in zip(*parts, strict=True))
    require(bool(scales.isfinite().all()), "weight is not finite; read the checkpoint again")
    return GroupedWeight(
        values=values.view(weight.shape), scales=scales, minimums=minimums, bits=bits, dtype=dtype
    )


_Groups = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Values uint8 [rows, num_groups, group]; scales and minimums float32 [rows, num_groups]."""


def _to_bytes(groups: torch.Tensor) -> _Groups:
    scales = _short(groups.abs().amax(dim=-1) / _LARGEST_BYTE)
    steps = _divided(groups, scales).round_().clamp_(-_LARGEST_BYTE, _LARGEST_BYTE)
    return steps.add_(_CENTRE).to(torch.uint8), scales, scales * -_CENTRE


def _to_nibbles(groups: torch.Tensor) -> _Groups:
    low, high = groups.aminmax(dim=-1)
    best = _assigned(groups, _short((high - low) / _LEVELS), low)
    least = _squared_error(groups, best)
    for part in _RANGES:
        margin = (high - low) * (1 - part) / 2
        tried = _fitted(groups, _assigned(groups, (high - low) * part / _LEVELS, low + margin)[0])
        error = _squared_error(groups, tried)
        better = error < least
        least = torch.where(better, error, least)
        best = (
            torch.where(better[..., None], tried[0], best[0]),
            torch.where(better, tried[1], best[1]),
            torch.where(better, tried[2], best[2]),
        )
    return best


def _assigned(groups: torch.Tensor, scales: torch.Tensor, minimums: torch.Tensor) -> _Groups:
    """The nearest values."""
    steps = _divided(groups - minimums[..., None], scales).round_().clamp_(0, _LEVELS)
    return steps.to(torch.uint8), scales, minimums


def _fitted(groups: torch.Tensor, values: torch.Tensor) -> _Groups:
    """The scale and minimum of least squared error for these values, and the values for them."""
    steps = values.float()
    mean_step, mean = steps.mean(dim=-1), groups.mean(dim=-1)
    away = steps - mean_step[..., None]
    scales = _short((away * groups).sum(dim=-1) / away.square().sum(dim=-1).clamp_min_(1e-9))
    return _assigned(groups, scales, mean - scales * mean_step)


def _squared_error(groups: torch.Tensor, quantized: _Groups) -> torch.Tensor:
    """[rows, num_groups]."""
    values, scales, minimums = quantized
    error = torch.addcmul(minimums[..., None], values, scales[..., None]) - groups
    return error.square_().sum(dim=-1)


def _divided(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """By the scale of each; 0 where that is 0."""
    return groups / scales.masked_fill(scales == 0, torch.inf)[..., None]


def _short(scales: torch.Tensor) -> torch.Tensor:
    """Rounded to 11 significant bits."""
    mantissas, exponents = torch.frexp(scales)
    return torch.ldexp((mantissas * 2048).round_() / 2048, exponents)
