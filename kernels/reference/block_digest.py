"""A digest of every (layer, K/V, head) slice of KV blocks, in plain torch on any device.

A multilinear hash modulo 2**64 (the family of Carter and Wegman, 1979): the sum of word[i] times
weight[i] over the slice's 64-bit words. The weights are odd, so that a change of one word always
changes the digest. It finds faults, not forgeries: the weights are public.
"""

from __future__ import annotations

import functools

import torch

from kernels.door import require, require_contiguous, require_dtype

_GOLDEN = -7046029254386353131  # 2**64 / golden ratio, as a signed number
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


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
    words = pool.flatten(-2).view(torch.int64)
    weights = digest_weights(num_words).to(pool.device)
    out = torch.empty((len(block_ids), *pool.shape[1:4]), dtype=torch.int64, device=pool.device)
    for row, block_id in enumerate(block_ids.tolist()):  # a block at a time stays in the cache
        torch.sum(words[block_id] * weights, dim=-1, out=out[row])
    return out


@functools.cache
def digest_weights(count: int) -> torch.Tensor:
    """int64 [count], odd and fixed for all time: splitmix64 (Steele et al., 2014) of 1, 2, 3..."""
    state = torch.arange(1, count + 1, dtype=torch.int64) * _GOLDEN
    state = (state ^ _shift_right(state, 30)) * _MIX_1
    state = (state ^ _shift_right(state, 27)) * _MIX_2
    return (state ^ _shift_right(state, 31)) | 1


def _shift_right(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Unsigned, of signed numbers."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)
