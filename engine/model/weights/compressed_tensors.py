"""Integer matrices of compressed-tensors, packed into words or one to a byte.

    weight_packed      int32 [out, in * bits / 32], integers around 2 ** (bits - 1), and
    weight_shape       int [2]: out, in                  or  weight  int8 [out, in]
    weight_scale       float [out, groups], [out, 1] or one value
    weight_zero_point  int32 [out * bits / 32, groups], packed along the outputs, or int8 like the
                       scales; absent: 0
    weight_g_idx       int32 [in]: each input's group, in activation order

Source: the compressed-tensors package's "pack-quantized" and "int-quantized" formats. Its 8-bit
floats are in `fp8`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from engine.model.weights.activation_order import grouped_weight
from engine.model.weights.stored_matrix import StoredMatrix, unpacked
from kernels.weights import Weight

_WIDTHS = (4, 8)


@dataclass(frozen=True, slots=True)
class CompressedTensorsLayout:
    """A `StoredLayout`. How many bits a packed matrix has follows from its shapes."""

    parts = frozenset(
        {
            "weight",
            "weight_packed",
            "weight_shape",
            "weight_scale",
            "weight_zero_point",
            "weight_g_idx",
            "input_scale",
            "input_zero_point",
        }
    )

    def recognizes(self, names: Mapping[str, str]) -> bool:
        """See StoredLayout."""
        return "weight_scale" in names

    def shape(self, stored: StoredMatrix) -> tuple[int, int]:
        """See StoredLayout."""
        if "weight_packed" not in stored:
            return stored.matrix_shape("weight")
        outputs, inputs = stored.read("weight_shape", 2).tolist()
        if stored.matrix_shape("weight_packed")[0] != outputs or inputs < 1:
            raise stored.bad(f"its weight_shape says {outputs} outputs, {inputs} inputs")
        return outputs, inputs

    def read(self, stored: StoredMatrix) -> Weight:
        """Groups where they are runs of inputs; in activation order the matrix is dequantized."""
        outputs, inputs = self.shape(stored)
        values, bits = _values(stored, outputs, inputs)
        scales = _per_output(stored, "weight_scale", outputs)
        zeros = _zeros(stored, bits, outputs, scales.shape[1])
        minimums = -(zeros + 2 ** (bits - 1)) * scales
        return grouped_weight(
            stored, values, scales, minimums, bits=bits, group_index="weight_g_idx"
        )


def _values(stored: StoredMatrix, outputs: int, inputs: int) -> tuple[torch.Tensor, int]:
    """uint8 [out, in] around 2 ** (bits - 1), and bits."""
    if "weight_packed" not in stored:
        values = stored.read("weight", outputs, inputs)
        if values.dtype is not torch.int8:
            raise stored.bad(f"it has scales and is {values.dtype}; needed: int8")
        return values.contiguous().view(torch.uint8) ^ 0x80, 8
    _, words = stored.matrix_shape("weight_packed")
    widths = [bits for bits in _WIDTHS if words == -(-inputs * bits // 32)]
    if not widths:
        raise stored.bad(f"{inputs} inputs in {words} words are neither of 4 bits nor of 8")
    packed = stored.integers("weight_packed", outputs, words)
    return unpacked(packed, widths[0])[:, :inputs].contiguous(), widths[0]


def _per_output(stored: StoredMatrix, part: str, outputs: int) -> torch.Tensor:
    """The part as float32 [out, groups]: it is one value, [out] or that."""
    tensor = stored.read(part, *stored.shape(part)).float()
    if tensor.numel() == 1:
        return tensor.view(1, 1).expand(outputs, 1)
    if tensor.dim() not in (1, 2) or tensor.shape[0] != outputs or not tensor.numel():
        raise stored.bad(f"its {part} has shape {tuple(tensor.shape)}; it has {outputs} outputs")
    return tensor.view(outputs, -1)


def _zeros(stored: StoredMatrix, bits: int, outputs: int, num_groups: int) -> torch.Tensor:
    """Signed zero points, float32 [out, groups] or [1, 1]."""
    part = "weight_zero_point"
    if part not in stored:
        return torch.zeros(1, 1)
    if stored.read(part, *stored.shape(part)).dtype is torch.int32:
        words = stored.integers(part, -(-outputs * bits // 32), num_groups)
        around: int = 2 ** (bits - 1)
        return unpacked(words.t(), bits)[:, :outputs].t().float() - around
    zeros = _per_output(stored, part, outputs)
    if zeros.shape[1] not in (1, num_groups):
        raise stored.bad(f"{zeros.shape[1]} zero points and {num_groups} scales for an output")
    return zeros
