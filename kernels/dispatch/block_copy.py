"""Whole KV blocks copied on whatever device they are; `kernels/reference/block_copy.py` is what it
does."""

from __future__ import annotations

import torch

from kernels.reference.block_copy import block_copy as reference_copy


def block_copy(
    source: torch.Tensor, source_ids: torch.Tensor, target: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """See kernels/reference/block_copy.py. Does not wait for the device."""
    if source.is_cuda:
        from kernels.triton.block_copy import block_copy as triton_copy

        triton_copy(source, source_ids, target, target_ids)
    else:
        reference_copy(source, source_ids, target, target_ids)
