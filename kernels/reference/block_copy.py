"""Whole KV blocks from one tensor to another, or within one, in plain torch on any device."""

from __future__ import annotations

import torch

from kernels.door import require, require_contiguous, require_dtype, require_same_device


def check_block_copy(
    source: torch.Tensor, source_ids: torch.Tensor, target: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """The door of every block_copy: shapes, dtypes and devices; not the block ids."""
    require(
        source.shape[1:] == target.shape[1:],
        f"blocks of {tuple(source.shape[1:])} do not fit into {tuple(target.shape[1:])}",
    )
    require_dtype("target", target, source.dtype)
    require_contiguous("source", source)
    require_contiguous("target", target)
    for name, ids in (("source_ids", source_ids), ("target_ids", target_ids)):
        require_dtype(name, ids, torch.int64)
        require(ids.dim() == 1, f"{name} has {ids.dim()} dimensions; needed: 1")
    require(
        source_ids.shape == target_ids.shape,
        f"{source_ids.shape[0]} sources for {target_ids.shape[0]} targets",
    )
    require_same_device(source, source_ids, target, target_ids)


def block_copy(
    source: torch.Tensor, source_ids: torch.Tensor, target: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """target[target_ids[i]] = source[source_ids[i]] for each i.

    source, target  [num_blocks, ...] of one block shape and dtype; they may be the same pool
                    (copy-on-write), or a pool and a staging buffer (gather, scatter)
    source_ids, target_ids  int64 [n]; targets are distinct, and no target is also a source
    """
    check_block_copy(source, source_ids, target, target_ids)
    target[target_ids] = source[source_ids]
