"""Digests of blocks, as they travel and as they are compared.

A digest is one 64-bit number per (layer, K/V, KV head): whoever holds a part of the heads can check
its part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from cluster.errors import TransferFailed

Digest = Callable[[torch.Tensor, Sequence[int]], torch.Tensor]
"""(pool [num_blocks, ...], block ids) -> int64 [len(ids), ...]."""


def wait_until_computed(pool: torch.Tensor) -> None:
    """Returns when all that was queued for the pool's device before has been done. At once for host
    memory: there, what was called has been done."""
    if pool.is_cuda:
        torch.cuda.current_stream(pool.device).synchronize()


def digest_bytes(digest: Digest, pool: torch.Tensor, block_ids: Sequence[int]) -> bytes:
    """Little-endian uint64, block after block: what an announcement carries."""
    return digest(pool, block_ids).cpu().contiguous().numpy().astype("<i8", copy=False).tobytes()


def matching(
    digest: Digest, pool: torch.Tensor, block_ids: Sequence[int], announced: Sequence[bytes]
) -> list[bool]:
    """Whether each block's digest is the announced one.

    Raises TransferFailed when the announced digests have another size than ours.
    """
    ours = digest(pool, block_ids).cpu().contiguous().view(len(block_ids), -1).numpy()
    theirs = b"".join(announced)
    if len(theirs) != ours.nbytes:
        raise TransferFailed(
            f"{len(theirs)} bytes of digests for {len(block_ids)} blocks; {ours.nbytes} are needed "
            "to verify them: start both workers with the same model and options"
        )
    expected = np.frombuffer(theirs, dtype="<i8").reshape(ours.shape)
    equal: list[bool] = (ours == expected).all(axis=1).tolist()
    return equal
