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

from engine.model.weights.activation_order import grouped_weight
from engine.model.weights.stored_matrix import StoredMatrix, unpacked
from kernels.weights import Weight


@dataclass(frozen=True, slots=True)
class GptqLayout:
    """A `StoredLayout`."""

    bits: int
    zeros_less_one: bool
    parts = frozenset({"qweight", "qzeros", "scales", "g_idx"})

    def recognizes(self, names: Mapping[str, str]) -> bool:
        """See StoredLayout."""
        return "qweight" in names

    def shape(self, stored: StoredMatrix) -> tuple[int, int]:
        """See StoredLayout."""
        words, outputs = stored.matrix_shape("qweight")
        return outputs, words * 32 // self.bits

    def read(self, stored: StoredMatrix) -> Weight:
        """Groups where they are runs of inputs; in activation order the matrix is dequantized."""
        outputs, inputs = self.shape(stored)
        num_groups, _ = stored.matrix_shape("scales")
        words = stored.integers("qweight", inputs * self.bits // 32, outputs)
        values = unpacked(words.t(), self.bits)
        scales = stored.read("scales", num_groups, outputs).t().float()
        minimums = -self._zeros(stored, num_groups, outputs) * scales
        return grouped_weight(stored, values, scales, minimums, bits=self.bits, group_index="g_idx")

    def _zeros(self, stored: StoredMatrix, num_groups: int, outputs: int) -> torch.Tensor:
        """Float32 [out, groups]."""
        words = stored.integers("qzeros", num_groups, -(-outputs * self.bits // 32))
        zeros = unpacked(words, self.bits)[:, :outputs]
        if self.zeros_less_one:
            zeros = (zeros + 1) & (2**self.bits - 1)
        return zeros.t().float()
