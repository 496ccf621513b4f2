"""Matrices of 8-bit floats (E4M3) with scales per matrix, output or block.

weight        float8_e4m3fn [out, in]
weight_scale  float [] or [1] or [out] or [out, 1], or [out / rows, in / columns] in blocks;
              "weight_scale_inv" in DeepSeek-V3's checkpoints, and multiplied all the same
input_scale   float [] or [1]: of the activations, where it was fixed beforehand
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from cluster.models.tensor_part import WHOLE, TensorPart
from engine.model.weights.stored_matrix import StoredMatrix
from kernels.weight_parts import block_part
from kernels.weights import Fp8Weight, Weight

_SCALES = ("weight_scale", "weight_scale_inv")


@dataclass(frozen=True, slots=True)
class Fp8Layout:
    """A `StoredLayout`."""

    block: tuple[int, int] | None
    """Outputs and inputs that share a scale; None: a matrix or an output has one."""
    suffixes = frozenset({"weight", *_SCALES, "input_scale", "output_scale"})

    def recognizes(self, names: Mapping[str, str]) -> bool:
        """See StoredLayout."""
        return any(scale in names for scale in _SCALES)

    def shape(self, stored: StoredMatrix) -> tuple[int, int]:
        """See StoredLayout."""
        return stored.matrix_shape("weight")

    def inputs_per_scale(self, stored: StoredMatrix) -> int | None:
        """See StoredLayout."""
        _, inputs = self.shape(stored)
        return inputs if self.block is None else min(inputs, self.block[1])

    def read(self, stored: StoredMatrix, part: TensorPart = WHOLE) -> Weight:
        """See StoredLayout."""
        outputs, inputs = self.shape(stored)
        rows, columns = part.within((outputs, inputs))
        values = stored.read("weight", outputs, inputs, part=TensorPart(rows, columns))
        if values.dtype is not torch.float8_e4m3fn:
            raise stored.bad(f"it has scales and is {values.dtype}; needed: float8_e4m3fn")
        scales, block = self._scales(stored, outputs, inputs)
        if not part.is_all_of((outputs, inputs)):
            scales, block = block_part(scales, block, rows, columns)
        return Fp8Weight(
            values=values,
            scales=scales,
            block=block,
            dtype=torch.float32,
            input_scale=_input_scale(stored),
        )

    def _scales(
        self, stored: StoredMatrix, outputs: int, inputs: int
    ) -> tuple[torch.Tensor, tuple[int, int]]:
        part = _SCALES[0] if _SCALES[0] in stored else _SCALES[1]
        scales = stored.read(part, *stored.shape(part)).float()
        if scales.numel() == 1:
            return scales.view(1, 1), (outputs, inputs)
        if scales.shape in ((outputs,), (outputs, 1)) and self.block is None:
            return scales.view(outputs, 1), (1, inputs)
        rows, columns = self.block or (1, inputs)
        needed = (-(-outputs // rows), -(-inputs // columns))
        return stored.read(part, *needed).float(), (rows, columns)


def _input_scale(stored: StoredMatrix) -> float | None:
    if "input_scale" not in stored:
        return None
    scale = stored.read("input_scale", *stored.shape("input_scale"))
    if scale.numel() != 1:
        raise stored.bad(f"its input_scale has shape {tuple(scale.shape)}; needed: one value")
    return float(scale)
