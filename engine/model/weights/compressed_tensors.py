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

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from cluster.models.tensor_part import WHOLE, TensorPart, inside_units, units_of
from engine.model.weights.activation_order import StoredGroups, grouped_weight
from engine.model.weights.stored_matrix import StoredMatrix, unpacked
from kernels.weights import Weight

_WIDTHS = (4, 8)


@dataclass(frozen=True, slots=True)
class CompressedTensorsLayout:
    """A `StoredLayout`. How many bits a packed matrix has follows from its shapes."""

    suffixes = frozenset(
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

    def inputs_per_scale(self, stored: StoredMatrix) -> int | None:
        """See StoredLayout."""
        (_, inputs), scales = self.shape(stored), stored.shape("weight_scale")
        num_groups = scales[1] if len(scales) == 2 else 1
        return None if num_groups < 1 or inputs % num_groups else inputs // num_groups

    def read(self, stored: StoredMatrix, part: TensorPart = WHOLE) -> Weight:
        """Groups where they are runs of inputs; in activation order the matrix is dequantized."""
        outputs, inputs = self.shape(stored)
        rows, columns = part.within((outputs, inputs))
        values, bits = _values(stored, (outputs, inputs), rows, columns)
        scales = _per_output(stored, "weight_scale", outputs, rows)
        zeros = _zeros(stored, bits, outputs, rows, scales.shape[1])
        groups = StoredGroups(
            values=values,
            scales=scales,
            minimums=-(zeros + 2 ** (bits - 1)) * scales,
            bits=bits,
            columns=columns,
            num_inputs=inputs,
        )
        return grouped_weight(stored, groups, "weight_g_idx")


def _values(
    stored: StoredMatrix, shape: tuple[int, int], rows: range, columns: range
) -> tuple[torch.Tensor, int]:
    """Some uint8 [rows, columns] around 2 ** (bits - 1), and bits."""
    outputs, inputs = shape
    if "weight_packed" not in stored:
        values = stored.read("weight", outputs, inputs, part=TensorPart(rows, columns))
        if values.dtype is not torch.int8:
            raise stored.bad(f"it has scales and is {values.dtype}; needed: int8")
        return values.contiguous().view(torch.uint8) ^ 0x80, 8
    _, words = stored.matrix_shape("weight_packed")
    widths = [bits for bits in _WIDTHS if words == -(-inputs * bits // 32)]
    if not widths:
        raise stored.bad(f"{inputs} inputs in {words} words are neither of 4 bits nor of 8")
    per_word = 32 // widths[0]
    packed_part = TensorPart(rows, units_of(columns, per_word))
    packed = stored.integers("weight_packed", outputs, words, part=packed_part)
    values = unpacked(packed, widths[0])[:, inside_units(columns, per_word)]
    return values.contiguous(), widths[0]


def _per_output(stored: StoredMatrix, suffix: str, outputs: int, rows: range) -> torch.Tensor:
    """Some outputs of that tensor as float32 [rows, groups]: it is one value, [out] or that."""
    shape = stored.shape(suffix)
    if math.prod(shape) == 1:
        return stored.read(suffix, *shape).float().view(1, 1).expand(len(rows), 1)
    if len(shape) not in (1, 2) or shape[0] != outputs or not math.prod(shape):
        raise stored.bad(f"its {suffix} has shape {shape}; it has {outputs} outputs")
    return stored.read(suffix, *shape, part=TensorPart(rows)).float().view(len(rows), -1)


def _zeros(
    stored: StoredMatrix, bits: int, outputs: int, rows: range, num_groups: int
) -> torch.Tensor:
    """Signed zero points of some outputs, float32 [rows, groups] or [1, 1]."""
    suffix = "weight_zero_point"
    if suffix not in stored:
        return torch.zeros(1, 1)
    if _is_packed(stored, suffix):
        per_word, num_words = 32 // bits, -(-outputs * bits // 32)
        packed_part = TensorPart(units_of(rows, per_word))
        words = stored.integers(suffix, num_words, num_groups, part=packed_part)
        around: int = 2 ** (bits - 1)
        return unpacked(words.t(), bits)[:, inside_units(rows, per_word)].t().float() - around
    zeros = _per_output(stored, suffix, outputs, rows)
    if zeros.shape[1] not in (1, num_groups):
        raise stored.bad(f"{zeros.shape[1]} zero points and {num_groups} scales for an output")
    return zeros


def _is_packed(stored: StoredMatrix, suffix: str) -> bool:
    """Whether that tensor holds words; one row of it tells."""
    return (
        stored.read(suffix, *stored.shape(suffix), part=TensorPart(range(1))).dtype is torch.int32
    )
