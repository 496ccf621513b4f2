"""A digest of every (layer, K/V, head) slice of KV blocks, in plain torch on any device.

A multilinear hash (the family of Carter and Wegman, 1979): the sum of half[i] * weight[i] modulo
2**64 over the 32-bit halves of the slice. The weights are odd, different and below 2**32, so

- one flipped bit, two flipped bits, a change within one half, or two unlike halves that changed
  places, always change the digest. A change of half[i] by x and of half[j] by y changes the sum by
  x * weight[i] + y * weight[j], which is below 2**64 in these cases: it vanishes only when it is 0.
  With x = 2**a and y = +-2**b that takes weight[i] * 2**a = weight[j] * 2**b, so a = b, as both are
  odd, and then equal weights; with y = -x it takes equal weights at once.
- any other fault stays unseen with a chance of 2**-32 at worst: that of flips of four top bits.

It finds faults, not forgeries: the weights are public.
"""

from __future__ import annotations

import functools

import torch

from kernels.door import require, require_contiguous, require_dtype

_MASK_31, _MASK_32 = 2**31 - 1, 2**32 - 1
_GOLDEN, _MIX_1, _MIX_2 = 0x1E3779B1, 0x7FEB352D, 0x5BD1E995  # odd: each product is a bijection


def check_block_digest(pool: torch.Tensor, block_ids: torch.Tensor) -> int:
    """The door of every block_digest; returns the number of 64-bit words per slice."""
    require(pool.dim() == 6, f"pool has {pool.dim()} dimensions; needed: 6")
    require_contiguous("pool", pool)
    require_dtype("block_ids", block_ids, torch.int64)
    require(block_ids.dim() == 1, f"block_ids has {block_ids.dim()} dimensions; needed: 1")
    slice_bytes = pool.shape[4] * pool.shape[5] * pool.dtype.itemsize
    require(slice_bytes % 8 == 0, f"a slice has {slice_bytes} bytes; needed: a multiple of 8")
    return slice_bytes // 8


def block_digest(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    """pool [num_blocks, num_layers, num_planes, num_kv_heads, block_size, row_width] and
    block_ids int64 [n] -> int64 [n, num_layers, num_planes, num_kv_heads]."""
    num_words = check_block_digest(pool, block_ids)
    halves = pool.flatten(-2).view(torch.int32)
    weights = digest_weights(num_words).to(pool.device).view(torch.int32).long() & _MASK_32
    out = torch.empty((len(block_ids), *pool.shape[1:4]), dtype=torch.int64, device=pool.device)
    for row, block_id in enumerate(block_ids.tolist()):  # a block at a time stays in the cache
        torch.sum((halves[block_id].long() & _MASK_32) * weights, dim=-1, out=out[row])
    return out


@functools.cache
def digest_weights(count: int) -> torch.Tensor:
    """int64 [count]: in each the weights of a word's two halves, the low half's below. Fixed for
    all time; different for 2**31 halves, as each is 2 * mixed(i) + 1 of a bijection of 31 bits."""
    state = (torch.arange(1, 2 * count + 1, dtype=torch.int64) * _GOLDEN) & _MASK_31
    state = ((state ^ (state >> 16)) * _MIX_1) & _MASK_31
    state = ((state ^ (state >> 15)) * _MIX_2) & _MASK_31
    weights = 2 * (state ^ (state >> 16)) + 1
    return weights[::2] | (weights[1::2] << 32)
