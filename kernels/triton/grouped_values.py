"""Low-bit weights in the order in which products read them.

    tiles of `width` inputs x outputs x the tile's bytes: what a program reads at once is one run
    4 bits: byte j holds input j of the tile, and input j + width / 2 in its upper half

Scales and minimums are float16 [groups, outputs], relative to a power of two per output: half the
bytes of float32, and 11 bits each whatever the size of the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernels.weights import GroupedWeight

MAX_WIDTH = 128
MIN_WIDTH = 32
"""Half of it is the smallest depth of a tensor-core product."""


def tile_width(weight: GroupedWeight) -> int:
    """Inputs of a tile, all of one group; less than MIN_WIDTH: there is no kernel for it."""
    return math.gcd(weight.group, MAX_WIDTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedValues:
    """See above; `pack` makes it."""

    values: torch.Tensor  # uint8 [in / width, out, width * bits / 8]
    scales: torch.Tensor  # float16 [in / group, out]
    minimums: torch.Tensor  # float16 [in / group, out]
    factors: torch.Tensor  # float32 [out]
    bits: int
    """4 or 8."""
    width: int
    group: int

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""
        return self.values.shape[1], self.values.shape[0] * self.width

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        held = (self.values, self.scales, self.minimums, self.factors)
        return sum(tensor.nbytes for tensor in held)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """ids int64 [n] -> float32 [n, in]. Nothing waits for the device."""
        values = self.values[:, ids]  # [in / width, n, bytes]
        if self.bits == 4:
            values = torch.cat((values & 15, values >> 4), dim=-1)
        tiles_per_group = self.group // self.width
        scales, minimums = (
            part[:, ids].float().repeat_interleave(tiles_per_group, 0)[..., None]
            for part in (self.scales, self.minimums)
        )  # [in / width, n, 1]
        weight = (values.float() * scales + minimums) * self.factors[ids][:, None]
        return weight.transpose(0, 1).flatten(1)


def pack(weight: GroupedWeight) -> GroupedValues:
    """Groups are multiples of MIN_WIDTH."""
    width, bits = tile_width(weight), 4 if weight.bits <= 4 else 8
    outputs, inputs = weight.shape
    values = weight.values.view(outputs, inputs // width, width).transpose(0, 1)
    if bits == 4:
        low, high = values.chunk(2, dim=-1)
        values = low | (high << 4)
    largest = torch.maximum(weight.scales.abs().amax(1), weight.minimums.abs().amax(1))
    factors = torch.exp2(torch.log2(largest.clamp(min=2.0**-100)).floor())
    return GroupedValues(
        values=values.contiguous(),
        scales=(weight.scales / factors[:, None]).half().T.contiguous(),
        minimums=(weight.minimums / factors[:, None]).half().T.contiguous(),
        factors=factors,
        bits=bits,
        width=width,
        group=weight.group,
    )
