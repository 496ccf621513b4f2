"""Rotates Q (in place) and K, and writes K and V to the paged pool, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous, require_same_device
from kernels.kv_rows import LARGEST
from kernels.reference.rope_write_kv import check_rope_write_kv
from kernels.triton.kv_scales import quantized, row_scale, scales_of
from kernels.triton.launch import next_power_of_2, on_device_of

_TILE = 1024
"""Values of half a head's width that a program of four warps rotates: eight a thread."""


@triton.jit
def rotate(low, high, cos, sin):
    """A head's halves by its position's angles."""
    return low * cos - high * sin, high * cos + low * sin


# grid [num_tokens, cdiv(num_heads + 2 * num_kv_heads, HEADS)]
@triton.jit
def _rope_write_kv(
    qkv,
    cos_sin,
    positions,
    slots,
    kv_layer,
    block_stride,
    largest,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    HALF: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    ROUNDS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    HEAD_DIM: tl.constexpr = 2 * HALF
    token = tl.program_id(0).to(tl.int64)
    heads, columns = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, WIDTH)
    in_half = (columns < HALF)[None, :]
    turn = cos_sin + tl.load(positions + token) * HEAD_DIM + columns
    cos = tl.load(turn, mask=columns < HALF, other=1.0)[None, :]
    sin = tl.load(turn + HALF, mask=columns < HALF, other=0.0)[None, :]
    row = qkv + token * (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
    at = row + heads[:, None] * HEAD_DIM + columns[None, :]
    inside = (heads < NUM_HEADS + 2 * NUM_KV_HEADS)[:, None] & in_half
    low = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    is_value = heads >= NUM_HEADS + NUM_KV_HEADS
    new_low, new_high = rotate(low, high, cos, sin)
    low = tl.where(is_value[:, None], low, new_low)
    high = tl.where(is_value[:, None], high, new_high)
    of_query = inside & (heads < NUM_HEADS)[:, None]
    tl.store(at, low.to(qkv.dtype.element_ty), mask=of_query)
    tl.store(at + HALF, high.to(qkv.dtype.element_ty), mask=of_query)
    slot = tl.load(slots + token)
    # K's heads, then V's: the planes of a block follow each other
    to_head = kv_layer + (slot // BLOCK) * block_stride + (heads - NUM_HEADS) * BLOCK * ROW_WIDTH
    written = inside & (heads >= NUM_HEADS)[:, None]
    if ROW_WIDTH != HEAD_DIM:
        peak = tl.max(tl.maximum(tl.abs(low), tl.abs(high)), axis=1)
        scale = row_scale(peak, largest)
        low = quantized(low, scale[:, None], largest, ROUNDS)
        high = quantized(high, scale[:, None], largest, ROUNDS)
        is_row = (heads >= NUM_HEADS) & (heads < NUM_HEADS + 2 * NUM_KV_HEADS)
        tl.store(scales_of(to_head + BLOCK * HEAD_DIM) + slot % BLOCK, scale, mask=is_row)
    to = (to_head + (slot % BLOCK) * HEAD_DIM)[:, None] + columns[None, :]
    tl.store(to, low.to(kv_layer.dtype.element_ty), mask=written)
    tl.store(to + HALF, high.to(kv_layer.dtype.element_ty), mask=written)


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
    _, _, num_kv_heads, block_size, row_width = kv_layer.shape
    num_tokens, all_heads = qkv.shape[0], num_heads + 2 * num_kv_heads
    half = qkv.shape[1] // all_heads // 2
    if num_tokens:
        width = next_power_of_2(half)
        heads = min(next_power_of_2(all_heads), max(1, _TILE // width))
        with on_device_of(qkv):
            _rope_write_kv[(num_tokens, triton.cdiv(all_heads, heads))](
                qkv,
                cos_sin,
                positions,
                slots,
                kv_layer,
                kv_layer.stride(0),
                LARGEST.get(kv_layer.dtype, 1.0),
                NUM_HEADS=num_heads,
                NUM_KV_HEADS=num_kv_heads,
                BLOCK=block_size,
                HALF=half,
                ROW_WIDTH=row_width,
                ROUNDS=kv_layer.dtype is torch.int8,
                HEADS=heads,
                WIDTH=width,
                num_warps=4,
            )
    return qkv.view(num_tokens, all_heads, 2 * half)[:, :num_heads]
