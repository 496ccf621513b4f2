"""A process's pool as other workers may read it, or as it reads theirs into it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.block_homes import BlockHomes
from cluster.models.head_share import HeadShare
from kernels.dispatch.block_digest import block_digest
from kvtransfer.local_pool import LocalPool
from kvtransfer.open_transport import open_transport
from kvtransfer.transport import Transport


@dataclass(frozen=True, slots=True)
class OpenPool:
    """The transport is the caller's to close."""

    local: LocalPool
    transport: Transport


def open_pool(
    kind: str,
    name: str,
    kv: torch.Tensor,
    share: HeadShare,
    *,
    generations: torch.Tensor | None = None,
    homes: BlockHomes | None = None,
) -> OpenPool:
    """`kind` and `name` as of `open_transport`, which says what it raises. `generations`: None
    where nobody reads this process's: the conductor's count. `homes`: as of a LocalPool.

    The kernel of the digests is made now, and not while the first request waits.
    """
    if generations is None:
        num_blocks = len(kv) if homes is None else homes.num_blocks
        generations = torch.zeros(num_blocks, dtype=torch.int64)
    local = LocalPool(kv, generations, share, homes)
    block_digest(kv, [0])
    return OpenPool(local, open_transport(kind, local, name))
