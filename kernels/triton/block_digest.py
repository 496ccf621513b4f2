"""The digest of KV blocks where they lie: one program per (layer, plane, head) slice of a block."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from kernels.reference.block_digest import check_block_digest, digest_weights
from kernels.triton.launch import next_power_of_2, on_device_of

_MAX_TILE = 2048


# grid [n, slices_per_block]
@triton.jit
def _digest_slice(
    halves, block_ids, weights, out, slices_per_block, num_halves, TILE: tl.constexpr
):
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    block = tl.load(block_ids + row)
    start = halves + (block * slices_per_block + piece) * num_halves
    columns = tl.arange(0, TILE)
    total = tl.zeros([TILE], tl.uint64)
    for first in range(0, num_halves, TILE):
        at = first + columns
        inside = at < num_halves
        half = tl.load(start + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
        weight = tl.load(weights + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
        total += half.to(tl.uint64) * weight.to(tl.uint64)
    tl.store(out + row * slices_per_block + piece, tl.sum(total, axis=0).to(tl.int64, bitcast=True))


def block_digest(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    """See kernels/reference/block_digest.py; equal to it in every bit."""
    num_words = check_block_digest(pool, block_ids)
    num_blocks = block_ids.shape[0]
    out = torch.empty((num_blocks, *pool.shape[1:4]), dtype=torch.int64, device=pool.device)
    slices_per_block = out[0].numel() if num_blocks else 0
    if num_blocks:
        with on_device_of(pool):
            _digest_slice[(num_blocks, slices_per_block)](
                pool.flatten(-2).view(torch.int32),
                block_ids,
                _weights_on(pool.device, num_words),
                out,
                slices_per_block,
                2 * num_words,
                TILE=min(_MAX_TILE, next_power_of_2(2 * num_words)),
            )
    return out


@functools.cache
def _weights_on(device: torch.device, num_words: int) -> torch.Tensor:
    """int32 [2 * num_words], read as unsigned: one for each half."""
    return digest_weights(num_words).view(torch.int32).to(device)
