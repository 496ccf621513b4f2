"""The digest of KV blocks, on whatever device they are; `kernels/reference/block_digest.py` is what
it computes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.cpu.native_library import native_library
from kernels.reference.block_digest import block_digest as reference_digest
from kernels.reference.block_digest import check_block_digest, digest_weights


def block_digest(pool: torch.Tensor, block_ids: Sequence[int]) -> torch.Tensor:
    """int64 [n, num_layers, num_planes, num_kv_heads] on the pool's device. Any thread may call it.

    pool  [num_blocks, num_layers, num_planes, num_kv_heads, block_size, row_width]

    Raises IndexError for a block that the pool does not have.
    """
    _check_ids(block_ids, pool.shape[0])
    ids = torch.tensor(block_ids, dtype=torch.int64, device=pool.device)
    if pool.device.type == "cuda":
        from kernels.triton.block_digest import block_digest as triton_digest

        return triton_digest(pool, ids)
    library = native_library() if pool.device.type == "cpu" else None
    if library is None:
        return reference_digest(pool, ids)
    num_words = check_block_digest(pool, ids)
    out = torch.empty((len(ids), *pool.shape[1:4]), dtype=torch.int64)
    slices_per_block = pool.shape[1] * pool.shape[2] * pool.shape[3]
    library.splitserve_block_digest(
        pool.data_ptr(),
        slices_per_block * num_words,
        ids.data_ptr(),
        len(ids),
        slices_per_block,
        digest_weights(num_words).data_ptr(),
        out.data_ptr(),
    )
    return out


def _check_ids(block_ids: Sequence[int], num_blocks: int) -> None:
    for block_id in block_ids:
        if not 0 <= block_id < num_blocks:
            raise IndexError(f"block {block_id} of a pool of {num_blocks}")
