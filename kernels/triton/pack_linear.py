"""A matrix in the form that this GPU multiplies fastest, by what the loader hands over.

plain                        as it is, by cuBLAS
low-bit groups               4 or 8 bits; groups of less than 32 inputs are put together first
8-bit floats                 as they are where the device multiplies them, else 2 bytes a weight
what fits none of these      dequantized: groups that do not come in multiples of 32 inputs,
                             scales of other blocks than whole rows, the whole, or 128 x 128
"""

from __future__ import annotations

import torch

from kernels.linear import Linear
from kernels.reference.linear import TorchLinear
from kernels.regroup import regroup
from kernels.triton.fp8_linear import Fp8Linear, has_fp8_form
from kernels.triton.gpu import multiplies_fp8
from kernels.triton.grouped_linear import TritonGroupedLinear
from kernels.triton.grouped_values import MIN_WIDTH, tile_width
from kernels.weights import Fp8Weight, GroupedWeight, Weight


def pack_linear(weight: Weight, bias: torch.Tensor | None = None) -> Linear:
    """See PackLinear."""
    if isinstance(weight, GroupedWeight):
        grouped = in_whole_tiles(weight)
        return TorchLinear(weight, bias) if grouped is None else TritonGroupedLinear(grouped, bias)
    if isinstance(weight, Fp8Weight) and multiplies_fp8(weight.values.device):
        return Fp8Linear(weight, bias) if has_fp8_form(weight) else TorchLinear(weight, bias)
    return TorchLinear(weight, bias)


def in_whole_tiles(weight: GroupedWeight) -> GroupedWeight | None:
    """With groups that the kernels take, requantized to 8 bits if need be; None: there is no way
    to such groups."""
    if tile_width(weight) >= MIN_WIDTH:
        return weight
    can_regroup = MIN_WIDTH % weight.group == 0 and weight.shape[1] % MIN_WIDTH == 0
    return regroup(weight, MIN_WIDTH) if can_regroup else None
