"""A matrix as a loader hands it to the kernels: plain, in low-bit groups, or in 8-bit floats.

A kernel set packs it (`KernelSet.pack_linear`); what a set has no kernel for is dequantized first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.door import require, require_dtype, require_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedWeight:
    """weight[o, i] = scales[o, i / group] * values[o, i] + minimums[o, i / group].

    Every stored integer format is this: symmetric ones have a minimum of -zero_point * scale.
    """

    values: torch.Tensor  # uint8 [out, in], each below 2 ** bits
    scales: torch.Tensor  # float32 [out, in / group]
    minimums: torch.Tensor  # float32 [out, in / group]
    bits: int
    dtype: torch.dtype
    """Of the activations it is multiplied with, and of `dequantize`."""

    def __post_init__(self) -> None:
        require(self.values.dim() == 2, f"values have {self.values.dim()} dimensions; needed: 2")
        require_dtype("values", self.values, torch.uint8)
        require_dtype("scales", self.scales, torch.float32)
        require_dtype("minimums", self.minimums, torch.float32)
        require(1 <= self.bits <= 8, f"{self.bits} bits; needed: 1 to 8")
        out_features, in_features = self.values.shape
        groups = self.scales.shape[-1]
        require(
            groups > 0 and in_features % groups == 0, f"{in_features} inputs in {groups} groups"
        )
        require_shape("scales", self.scales, (out_features, groups))
        require_shape("minimums", self.minimums, (out_features, groups))

    @property
    def shape(self) -> torch.Size:
        """[out, in]."""
        return self.values.shape

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.values.shape[1] // self.scales.shape[1]

    def dequantize(self) -> torch.Tensor:
        """[out, in] in `dtype`."""
        grouped = self.values.view(*self.scales.shape, self.group).float()
        weight = grouped * self.scales[..., None] + self.minimums[..., None]
        return weight.view(self.values.shape).to(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Weight:
    """weight[o, i] = values[o, i] * scales[o / rows, i / columns], in blocks of [rows, columns]."""

    values: torch.Tensor  # float8_e4m3fn [out, in]
    scales: torch.Tensor  # float32 [ceil(out / rows), ceil(in / columns)]
    block: tuple[int, int]
    """(out, in): one scale in all; (1, in): one per output; (128, 128): DeepSeek-V3."""
    dtype: torch.dtype
    """Of the activations, and of `dequantize`."""
    input_scale: float | None = None
    """Static scale of the activations; None: from each row's largest value."""

    def __post_init__(self) -> None:
        require_dtype("values", self.values, torch.float8_e4m3fn)
        require_dtype("scales", self.scales, torch.float32)
        rows, columns = self.block
        out_features, in_features = self.values.shape
        require_shape("scales", self.scales, (-(-out_features // rows), -(-in_features // columns)))

    @property
    def shape(self) -> torch.Size:
        """[out, in]."""
        return self.values.shape

    def dequantize(self) -> torch.Tensor:
        """[out, in] in `dtype`."""
        out_features, in_features = self.values.shape
        spread = self.scales.repeat_interleave(self.block[0], 0)[:out_features]
        spread = spread.repeat_interleave(self.block[1], 1)[:, :in_features]
        return (self.values.float() * spread).to(self.dtype)


Weight = torch.Tensor | GroupedWeight | Fp8Weight


def plain(weight: Weight) -> torch.Tensor:
    """[out, in], dequantized if need be."""
    return weight if isinstance(weight, torch.Tensor) else weight.dequantize()
