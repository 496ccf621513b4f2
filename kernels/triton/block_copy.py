"""Whole KV blocks between a pool and a staging buffer, or within the pool, at copy bandwidth."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.reference.block_copy import check_block_copy
from kernels.triton.launch import on_device_of

_TILE_BYTES = 16384
"""Per program: enough loads in flight, and enough programs for one block of a small model."""


# grid [n, cdiv(words_per_block, TILE)]
@triton.jit
def _copy_tile(source, source_ids, target, target_ids, words_per_block, TILE: tl.constexpr):
    block = tl.program_id(0)
    words = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = words < words_per_block
    from_block = source + tl.load(source_ids + block) * words_per_block
    to_block = target + tl.load(target_ids + block) * words_per_block
    tl.store(to_block + words, tl.load(from_block + words, mask=inside, other=0), mask=inside)


def block_copy(
    source: torch.Tensor, source_ids: torch.Tensor, target: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """See kernels/reference/block_copy.py."""
    check_block_copy(source, source_ids, target, target_ids)
    words = _words_of(source)
    words_per_block = words.shape[1]
    if source_ids.shape[0] == 0 or words_per_block == 0:
        return
    tile = _TILE_BYTES // words.dtype.itemsize
    with on_device_of(source):
        grid = (source_ids.shape[0], triton.cdiv(words_per_block, tile))
        _copy_tile[grid](
            words, source_ids, _words_of(target), target_ids, words_per_block, TILE=tile
        )


def _words_of(blocks: torch.Tensor) -> torch.Tensor:
    """[num_blocks, words_per_block] of the widest integers that a block divides into."""
    flat = blocks.view(torch.uint8).view(blocks.shape[0], -1)
    wide = flat.shape[1] % 8 == 0 and flat.data_ptr() % 8 == 0
    return flat.view(torch.int64) if wide else flat
