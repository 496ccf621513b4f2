"""Groups of inputs that may be scattered: GPTQ quantizes the most active inputs first.

Where an index of groups only says that groups are equal runs, the groups are kept; otherwise the
matrix is dequantized, since a grouped weight has no order of its own.
"""

from __future__ import annotations

import torch

from engine.model.weights.stored_matrix import StoredMatrix
from kernels.weights import GroupedWeight, Weight


def grouped_weight(
    stored: StoredMatrix,
    values: torch.Tensor,
    scales: torch.Tensor,
    minimums: torch.Tensor,
    *,
    bits: int,
    group_index: str,
) -> Weight:
    """values uint8 [out, in], scales and minimums float32 [out, groups]; exact either way.

    `group_index` names the part, int32 [in], that says which group each input is in, if it is
    there. Raises BadCheckpoint where it does not fit.
    """
    num_groups = scales.shape[1]
    group_of = _group_of_inputs(stored, group_index, values.shape[1], num_groups)
    if group_of is not None:
        return values * scales[:, group_of] + minimums[:, group_of]
    return GroupedWeight(
        values=values.contiguous(),
        scales=scales.contiguous(),
        minimums=minimums.contiguous(),
        bits=bits,
        dtype=torch.float32,
    )


def _group_of_inputs(
    stored: StoredMatrix, part: str, inputs: int, num_groups: int
) -> torch.Tensor | None:
    """int64 [in]; None where groups are equal runs."""
    has_runs = num_groups > 0 and inputs % num_groups == 0
    group_of = stored.integers(part, inputs).long() if part in stored else None
    if group_of is None or bool((group_of == -1).all()):  # compressed-tensors: not in use
        if not has_runs:
            raise stored.bad(f"{inputs} inputs in {num_groups} groups")
        return None
    if group_of.min() < 0 or group_of.max() >= num_groups:
        raise stored.bad(f"its {part} names groups outside 0 to {num_groups - 1}")
    if has_runs and torch.equal(group_of, torch.arange(inputs) // (inputs // num_groups)):
        return None
    return group_of
