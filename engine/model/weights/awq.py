"""AWQ's matrices: 4-bit integers packed along the outputs in an interleaved order.

    qweight  int32 [in, out / 8]   qzeros  int32 [groups, out / 8]   scales  float [groups, out]

Source: Lin et al., "AWQ", 2023; the layout is AutoAWQ's for its "gemm" kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from cluster.models.tensor_part import WHOLE, TensorPart, inside_units, units_of
from engine.model.weights.activation_order import StoredGroups
from engine.model.weights.stored_matrix import StoredMatrix, unpacked
from kernels.weights import Weight

_BITS, _PER_WORD = 4, 8
_NIBBLE_OF_OUTPUT = [0, 4, 1, 5, 2, 6, 3, 7]
"""A word's nibbles, lowest first, are outputs 0, 2, 4, 6, 1, 3, 5, 7; this is the inverse."""


@dataclass(frozen=True, slots=True)
class AwqLayout:
    """A `StoredLayout`."""

    suffixes = frozenset({"qweight", "qzeros", "scales"})

    def recognizes(self, names: Mapping[str, str]) -> bool:
        """See StoredLayout."""
        return "qweight" in names

    def shape(self, stored: StoredMatrix) -> tuple[int, int]:
        """See StoredLayout."""
        inputs, words = stored.matrix_shape("qweight")
        return words * _PER_WORD, inputs

    def inputs_per_scale(self, stored: StoredMatrix) -> int | None:
        """See StoredLayout."""
        _, inputs = self.shape(stored)
        return inputs // _num_groups(stored, inputs)

    def read(self, stored: StoredMatrix, part: TensorPart = WHOLE) -> Weight:
        """See StoredLayout."""
        outputs, inputs = self.shape(stored)
        rows, columns = part.within((outputs, inputs))
        num_groups = _num_groups(stored, inputs)
        scales = stored.read("scales", num_groups, outputs, part=TensorPart(columns=rows))
        scales = scales.t().float().contiguous()
        zeros = _outputs(stored, "qzeros", (num_groups, outputs), TensorPart(columns=rows)).float()
        values = _outputs(stored, "qweight", (inputs, outputs), TensorPart(columns, rows))
        groups = StoredGroups(
            values=values,
            scales=scales,
            minimums=-zeros * scales,
            bits=_BITS,
            columns=columns,
            num_inputs=inputs,
        )
        return groups.in_runs()


def _num_groups(stored: StoredMatrix, inputs: int) -> int:
    """Raises BadCheckpoint where the inputs are not so many equal runs."""
    num_groups, _ = stored.matrix_shape("scales")
    if num_groups < 1 or inputs % num_groups:
        raise stored.bad(f"{inputs} inputs in {num_groups} groups")
    return num_groups


def _outputs(
    stored: StoredMatrix, name: str, shape: tuple[int, int], part: TensorPart
) -> torch.Tensor:
    """Some of [n, out], which is packed along the outputs: uint8 [outputs, n]."""
    count, outputs = shape
    _, rows = part.within(shape)
    packed_part = TensorPart(part.rows, units_of(rows, _PER_WORD))
    words = stored.integers(name, count, outputs // _PER_WORD, part=packed_part)
    return _in_order(words)[:, inside_units(rows, _PER_WORD)].t()


def _in_order(words: torch.Tensor) -> torch.Tensor:
    """int32 [rows, out / 8] -> uint8 [rows, out]."""
    nibbles = unpacked(words, _BITS).view(words.shape[0], -1, _PER_WORD)
    return nibbles[:, :, _NIBBLE_OF_OUTPUT].flatten(1)
