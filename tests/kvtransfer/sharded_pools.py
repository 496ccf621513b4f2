"""One marked KV cache, laid out as any rank of any group would hold it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.sharding import HeadSplit
from kvtransfer.resharding import BlockForm

Bytes = NDArray[np.uint8]


class MarkedCache:
    """Random bytes [num_tokens, num_planes, num_heads, row_bytes], and scales likewise."""

    def __init__(
        self,
        num_tokens: int,
        num_heads: int,
        *,
        num_planes: int = 3,
        row_bytes: int = 8,
        scale_bytes: int = 0,
        seed: int = 0,
    ) -> None:
        chance = np.random.default_rng(seed)
        shape = (num_tokens, num_planes, num_heads)
        self.values = chance.integers(0, 256, (*shape, row_bytes), dtype=np.uint8)
        self.scales = chance.integers(0, 256, (*shape, scale_bytes), dtype=np.uint8)

    def planes(self, some: slice) -> MarkedCache:
        """Of some of its planes alone."""
        part = copy.copy(self)
        part.values, part.scales = self.values[:, some], self.scales[:, some]
        return part

    def form(self, heads: range, block_size: int) -> BlockForm:
        """Of a rank's blocks."""
        return BlockForm(
            num_planes=self.values.shape[1],
            heads=heads,
            block_size=block_size,
            row_bytes=self.values.shape[3],
            scale_bytes=self.scales.shape[3],
        )

    def blocks(self, form: BlockForm) -> Bytes:
        """[num_blocks, block_bytes], as a rank of that form holds them; in the order of tokens."""
        num_blocks = len(self.values) // form.block_size
        parts = []
        for whole in (self.values, self.scales):
            rows = whole[:, :, form.heads.start : form.heads.stop]
            rows = rows.reshape(num_blocks, form.block_size, *rows.shape[1:])
            parts.append(
                rows.transpose(0, 2, 3, 1, 4).reshape(*rows.shape[:1], *rows.shape[2:4], -1)
            )
        return np.concatenate(parts, axis=-1).reshape(num_blocks, -1)


def shares_of(num_heads: int, world_size: int, *, is_latent: bool = False) -> Sequence[range]:
    """The KV heads of each rank of a group, as the model's split has them; a latent is whole
    everywhere."""
    if is_latent:
        return [range(1)] * world_size
    split = HeadSplit(num_heads=num_heads * 72, num_kv_heads=num_heads, world_size=world_size)
    return [split.kv_heads(rank) for rank in range(world_size)]
