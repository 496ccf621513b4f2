"""Rotates Q (in place) and K, and writes K and V to the paged pool, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous, require_same_device
from kernels.reference.rope_write_kv import check_rope_write_kv
from kernels.triton.launch import next_power_of_2, on_device_of


@triton.jit
def _rotate(low, high, cos, sin):
    return low * cos - high * sin, high * cos + low * sin


# grid [num_tokens, num_heads + num_kv_heads]: first the query heads, then the KV heads
@triton.jit
def _rope_write_kv(
    qkv,
    cos_sin,
    positions,
    slots,
    kv_layer,
    block_stride,
    num_heads,
    num_kv_heads,
    block_size,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    inside = columns < HALF
    turn = cos_sin + tl.load(positions + token) * 2 * HALF + columns
    cos = tl.load(turn, mask=inside, other=0.0)
    sin = tl.load(turn + HALF, mask=inside, other=0.0)
    source = qkv + (token * (num_heads + 2 * num_kv_heads) + head) * 2 * HALF + columns
    low = tl.load(source, mask=inside, other=0.0)
    high = tl.load(source + HALF, mask=inside, other=0.0)
    new_low, new_high = _rotate(low.to(tl.float32), high.to(tl.float32), cos, sin)
    if head < num_heads:
        tl.store(source, new_low.to(low.dtype), mask=inside)
        tl.store(source + HALF, new_high.to(low.dtype), mask=inside)
    else:
        slot = tl.load(slots + token)
        row = (head - num_heads) * block_size + slot % block_size
        key = kv_layer + (slot // block_size) * block_stride + row * 2 * HALF + columns
        value = key + num_kv_heads * block_size * 2 * HALF
        from_value = source + num_kv_heads * 2 * HALF
        tl.store(key, new_low.to(low.dtype), mask=inside)
        tl.store(key + HALF, new_high.to(low.dtype), mask=inside)
        tl.store(value, tl.load(from_value, mask=inside, other=0.0), mask=inside)
        tl.store(value + HALF, tl.load(from_value + HALF, mask=inside, other=0.0), mask=inside)


def rope_write_kv(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    kv_layer: torch.Tensor,
) -> torch.Tensor:
    """See kernels/reference/rope_write_kv.py. The result is a view of `qkv`."""
    num_heads = check_rope_write_kv(qkv, cos_sin, positions, slots, kv_layer)
    require_contiguous("qkv", qkv)
    require_contiguous("cos_sin", cos_sin)
    require_same_device(qkv, cos_sin, positions, slots, kv_layer)
    _, _, num_kv_heads, block_size, head_dim = kv_layer.shape
    if qkv.shape[0]:
        with on_device_of(qkv):
            _rope_write_kv[(qkv.shape[0], num_heads + num_kv_heads)](
                qkv,
                cos_sin,
                positions,
                slots,
                kv_layer,
                kv_layer.stride(0),
                num_heads,
                num_kv_heads,
                block_size,
                HALF=head_dim // 2,
                WIDTH=next_power_of_2(head_dim // 2),
            )
    return qkv.view(qkv.shape[0], num_heads + 2 * num_kv_heads, head_dim)[:, :num_heads]
