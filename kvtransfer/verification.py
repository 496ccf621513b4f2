"""Digests of blocks, as they travel and as they are compared.

A digest is one 64-bit number per (layer, plane, KV head) of a block, or of each part of a block
where the reader's blocks are smaller: whoever holds a part of the heads, or of the tokens, can
check its part. A part is digested as if it were a block of its own. Those of layers that rank 0 has
whole come behind all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.block_span import BlockSpan
from cluster.errors import TransferFailed
from cluster.kv_shape import KV_SCALE_BYTES
from kvtransfer.local_pool import LocalPool

Digest = Callable[[torch.Tensor, Sequence[int]], torch.Tensor]
"""(pool [num_blocks, ...], block ids) -> int64 [len(ids), ...]."""


def wait_until_computed(pool: torch.Tensor) -> None:
    """Returns when all that was queued for the pool's device before has been done. At once for host
    memory: there, what was called has been done."""
    if pool.is_cuda:
        torch.cuda.current_stream(pool.device).synchronize()


def digest_parts(
    digest: Digest, blocks: torch.Tensor, block_ids: Sequence[int], parts: int = 1
) -> torch.Tensor:
    """int64 [num_ids, num_layers, num_planes, num_kv_heads * parts] on the pool's device: the parts
    of a head follow each other."""
    if parts == 1:
        return digest(blocks, block_ids)
    if blocks.element_size() == 1:  # of a quantized pool, the scales lie behind all values
        blocks, block_ids = _regrouped(blocks[list(block_ids)], parts), range(len(block_ids))
    size, width = blocks.shape[4:]
    return digest(blocks.view(*blocks.shape[:3], -1, size // parts, width), block_ids)


def digest_bytes(digest: Digest, pool: torch.Tensor, block_ids: Sequence[int]) -> bytes:
    """Little-endian uint64, block after block: what an announcement of whole blocks carries."""
    return packed_digests(digest(pool, block_ids))


def packed_digests(digests: torch.Tensor) -> bytes:
    """Little-endian uint64."""
    return digests.cpu().contiguous().numpy().astype("<i8", copy=False).tobytes()


def own_digests(
    digest: Digest, pool: LocalPool, block_ids: Sequence[int], parts: int = 1
) -> NDArray[np.int64]:
    """[num_ids, planes, own heads, parts] of what the pool holds; in a group that has layers whole
    at a rank, [num_ids, all of it, 1, 1]."""
    found = digest_parts(digest, pool.blocks, block_ids, parts).cpu().contiguous()
    form = pool.form
    if pool.heads.num_whole_layers:
        held = (form.num_shared + form.num_whole) * parts
        return found.view(len(block_ids), -1)[:, :held, None, None].numpy()
    shape = (len(block_ids), form.num_planes, len(pool.heads.heads), parts)
    return found.view(*shape).numpy()


def announced_digests(span: BlockSpan, pool: LocalPool, parts: int = 1) -> NDArray[np.int64]:
    """As `own_digests`: of all heads of the model, those that the pool holds.

    Raises TransferFailed when the announced digests are not so many.
    """
    heads, num_shared = pool.heads, pool.form.num_planes
    shape = (span.num_blocks, pool.num_planes, heads.num_heads, parts)
    needed = 8 * math.prod(shape)
    if len(span.digests) != needed:
        raise TransferFailed(
            f"{len(span.digests)} bytes of digests for {span.num_blocks} blocks; {needed} are "
            "needed to verify them: start both workers with the same model and options"
        )
    every = np.frombuffer(span.digests, dtype="<i8").reshape(shape)
    own = every[:, :num_shared, heads.heads.start : heads.heads.stop]
    if not heads.num_whole_layers:
        return own
    held = [own] if not pool.form.num_whole else [own, every[:, num_shared:]]
    flat = [part.reshape(span.num_blocks, -1) for part in held]
    return np.concatenate(flat, axis=1)[:, :, None, None]


def _regrouped(blocks: torch.Tensor, parts: int) -> torch.Tensor:
    """Of the same shape, but each part of a head lies together: the values of its rows, then their
    scales, as in a block of its size."""
    size, width = blocks.shape[4:]
    head = blocks.view(torch.uint8).flatten(-2)
    edge = size * (width - KV_SCALE_BYTES)
    values = head[..., :edge].reshape(*head.shape[:-1], parts, -1)
    scales = head[..., edge:].reshape(*head.shape[:-1], parts, -1)
    return torch.cat((values, scales), dim=-1).view(blocks.shape)
