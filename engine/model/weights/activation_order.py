"""Groups of inputs that may be scattered: GPTQ quantizes the most active inputs first.

Where an index of groups only says that groups are equal runs, the groups are kept; otherwise the
matrix is dequantized, since a grouped weight has no order of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.model.weights.stored_matrix import StoredMatrix
from kernels.weight_parts import group_part
from kernels.weights import GroupedWeight, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroups:
    """Some columns of a matrix, with the scales of all of them."""

    values: torch.Tensor  # uint8 [out, len(columns)]
    scales: torch.Tensor  # float32 [out, groups]
    minimums: torch.Tensor  # float32 [out, groups]
    bits: int
    columns: range
    num_inputs: int
    """Of the whole matrix."""

    def in_runs(self) -> GroupedWeight:
        """Where groups are equal runs of the inputs."""
        group = self.num_inputs // self.scales.shape[1]
        return GroupedWeight(
            values=self.values.contiguous(),
            scales=group_part(self.scales, group, self.columns).contiguous(),
            minimums=group_part(self.minimums, group, self.columns).contiguous(),
            bits=self.bits,
            dtype=torch.float32,
        )


def grouped_weight(stored: StoredMatrix, groups: StoredGroups, group_index: str) -> Weight:
    """Exact either way.

    `group_index` is the suffix of the tensor, int32 [in], that says which group each input is in,
    if it is there. Raises BadCheckpoint where it does not fit.
    """
    num_groups = groups.scales.shape[1]
    group_of = _group_of_inputs(stored, group_index, groups.num_inputs, num_groups)
    if group_of is None:
        return groups.in_runs()
    own = group_of[groups.columns.start : groups.columns.stop]
    return groups.values * groups.scales[:, own] + groups.minimums[:, own]


def _group_of_inputs(
    stored: StoredMatrix, suffix: str, inputs: int, num_groups: int
) -> torch.Tensor | None:
    """int64 [in]; None where groups are equal runs."""
    has_runs = num_groups > 0 and inputs % num_groups == 0
    group_of = stored.integers(suffix, inputs).long() if suffix in stored else None
    if group_of is None or bool((group_of == -1).all()):  # compressed-tensors: not in use
        if not has_runs:
            raise stored.bad(f"{inputs} inputs in {num_groups} groups")
        return None
    if group_of.min() < 0 or group_of.max() >= num_groups:
        raise stored.bad(f"its {suffix} names groups outside 0 to {num_groups - 1}")
    if has_runs and torch.equal(group_of, torch.arange(inputs) // (inputs // num_groups)):
        return None
    return group_of
