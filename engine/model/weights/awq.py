"""AWQ's matrices: 4-bit integers packed along the outputs in an interleaved order.

    qweight  int32 [in, out / 8]   qzeros  int32 [groups, out / 8]   scales  float [groups, out]

Source: Lin et al., "AWQ", 2023; the layout is AutoAWQ's for its "gemm" kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from engine.model.weights.stored_matrix import StoredMatrix, unpacked
from kernels.weights import GroupedWeight, Weight

_BITS, _PER_WORD = 4, 8
_NIBBLE_OF_OUTPUT = [0, 4, 1, 5, 2, 6, 3, 7]
"""A word's nibbles, lowest first, are outputs 0, 2, 4, 6, 1, 3, 5, 7; this is the inverse."""


@dataclass(frozen=True, slots=True)
class AwqLayout:
    """A `StoredLayout`."""

    parts = frozenset({"qweight", "qzeros", "scales"})

    def recognizes(self, names: Mapping[str, str]) -> bool:
        """See StoredLayout."""
        return "qweight" in names

    def shape(self, stored: StoredMatrix) -> tuple[int, int]:
        """See StoredLayout."""
        inputs, words = stored.matrix_shape("qweight")
        return words * _PER_WORD, inputs

    def read(self, stored: StoredMatrix) -> Weight:
        """See StoredLayout."""
        outputs, inputs = self.shape(stored)
        num_groups, _ = stored.matrix_shape("scales")
        if num_groups < 1 or inputs % num_groups:
            raise stored.bad(f"{inputs} inputs in {num_groups} groups")
        words = outputs // _PER_WORD
        scales = stored.read("scales", num_groups, outputs).t().float().contiguous()
        zeros = _in_order(stored.integers("qzeros", num_groups, words)).t().float()
        return GroupedWeight(
            values=_in_order(stored.integers("qweight", inputs, words)).t().contiguous(),
            scales=scales,
            minimums=-zeros * scales,
            bits=_BITS,
            dtype=torch.float32,
        )


def _in_order(words: torch.Tensor) -> torch.Tensor:
    """int32 [rows, out / 8] -> uint8 [rows, out]."""
    nibbles = unpacked(words, _BITS).view(words.shape[0], -1, _PER_WORD)
    return nibbles[:, :, _NIBBLE_OF_OUTPUT].flatten(1)
