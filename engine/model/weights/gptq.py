"""GPTQ's matrices: integers packed along the inputs, a scale and a zero point per group.

    qweight  int32 [in * bits / 32, out]       scales  float [groups, out]
    qzeros   int32 [groups, out * bits / 32]   g_idx   int32 [in]: each input's group

Source: Frantar et al., "GPTQ", 2022; the layout is AutoGPTQ's, of which version 1 stores zero
points less one, wrapping around.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from cluster.models.tensor_part import WHOLE, TensorPart, inside_units, units_of
from engine.model.weights.activation_order import StoredGroups, grouped_weight
from engine.model.weights.stored_matrix import StoredMatrix, unpacked
from kernels.weights import Weight


@dataclass(frozen=True, slots=True)
class GptqLayout:
    """A `StoredLayout`."""

    bits: int
    zeros_less_one: bool
    suffixes = frozenset({"qweight", "qzeros", "scales", "g_idx"})

    def recognizes(self, names: Mapping[str, str]) -> bool:
        """See StoredLayout."""
        return "qweight" in names

    def shape(self, stored: StoredMatrix) -> tuple[int, int]:
        """See StoredLayout."""
        words, outputs = stored.matrix_shape("qweight")
        return outputs, words * 32 // self.bits

    def inputs_per_scale(self, stored: StoredMatrix) -> int | None:
        """See StoredLayout."""
        (_, inputs), (num_groups, _) = self.shape(stored), stored.matrix_shape("scales")
        return None if num_groups < 1 or inputs % num_groups else inputs // num_groups

    def read(self, stored: StoredMatrix, part: TensorPart = WHOLE) -> Weight:
        """Groups where they are runs of inputs; in activation order the matrix is dequantized."""
        outputs, inputs = self.shape(stored)
        rows, columns = part.within((outputs, inputs))
        num_groups, _ = stored.matrix_shape("scales")
        per_word = 32 // self.bits
        packed_part = TensorPart(units_of(columns, per_word), rows)
        words = stored.integers("qweight", inputs * self.bits // 32, outputs, part=packed_part)
        scales = stored.read("scales", num_groups, outputs, part=TensorPart(columns=rows))
        scales = scales.t().float()
        groups = StoredGroups(
            values=unpacked(words.t(), self.bits)[:, inside_units(columns, per_word)],
            scales=scales,
            minimums=-self._zeros(stored, num_groups, outputs, rows) * scales,
            bits=self.bits,
            columns=columns,
            num_inputs=inputs,
        )
        return grouped_weight(stored, groups, "g_idx")

    def _zeros(
        self, stored: StoredMatrix, num_groups: int, outputs: int, rows: range
    ) -> torch.Tensor:
        """Of some outputs: float32 [rows, groups]."""
        per_word = 32 // self.bits
        packed_part = TensorPart(columns=units_of(rows, per_word))
        words = stored.integers(
            "qzeros", num_groups, -(-outputs * self.bits // 32), part=packed_part
        )
        zeros = unpacked(words, self.bits)[:, inside_units(rows, per_word)]
        if self.zeros_less_one:
            zeros = (zeros + 1) & (2**self.bits - 1)
        return zeros.t().float()
