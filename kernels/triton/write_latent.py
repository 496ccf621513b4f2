"""Norms a token's latent, rotates its shared key and its queries, and writes the row to the pool,
in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous, require_same_device
from kernels.kv_rows import LARGEST
from kernels.latent import LatentNorm, check_write_latent
from kernels.triton.kv_scales import quantized, row_scale, scales_of
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.rope_write_kv import rotate

_HEADS = 32
"""Query heads of one program."""


@triton.jit
def _write_row(
    source,  # pointer to the token's latent and shared key
    row,  # pointer to its row in the pool
    scales,  # pointer to its scale
    weight,
    cos,
    sin,
    eps,
    largest,
    RANK: tl.constexpr,
    HALF: tl.constexpr,
    QUANTIZED: tl.constexpr,
    ROUNDS: tl.constexpr,
    WIDTH: tl.constexpr,
    HALF_WIDTH: tl.constexpr,
):
    columns, halves = tl.arange(0, WIDTH), RANK + tl.arange(0, HALF_WIDTH)
    in_rank, in_half = columns < RANK, halves < RANK + HALF
    value = tl.load(source + columns, mask=in_rank, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(value * value, axis=0) / RANK + eps)
    value = value * norm * tl.load(weight + columns, mask=in_rank, other=0.0)
    low = tl.load(source + halves, mask=in_half, other=0.0).to(tl.float32)
    high = tl.load(source + HALF + halves, mask=in_half, other=0.0).to(tl.float32)
    low, high = rotate(low, high, cos, sin)
    if QUANTIZED:
        key_peak = tl.max(tl.maximum(tl.abs(low), tl.abs(high)), axis=0)
        scale = row_scale(tl.maximum(tl.max(tl.abs(value), axis=0), key_peak), largest)
        value = quantized(value, scale, largest, ROUNDS)
        low = quantized(low, scale, largest, ROUNDS)
        high = quantized(high, scale, largest, ROUNDS)
        tl.store(scales_of(scales), scale)
    tl.store(row + columns, value.to(row.dtype.element_ty), mask=in_rank)
    tl.store(row + halves, low.to(row.dtype.element_ty), mask=in_half)
    tl.store(row + HALF + halves, high.to(row.dtype.element_ty), mask=in_half)


@triton.jit
def _rotate_queries(at, mask, cos, sin, HALF: tl.constexpr):
    low = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=mask, other=0.0).to(tl.float32)
    low, high = rotate(low, high, cos[None, :], sin[None, :])
    tl.store(at, low.to(at.dtype.element_ty), mask=mask)
    tl.store(at + HALF, high.to(at.dtype.element_ty), mask=mask)


# grid [num_tokens, 1 + cdiv(NUM_HEADS, HEADS)]: first the row, then the queries
@triton.jit
def _write_latent(
    query,
    latent,
    weight,
    cos_sin,
    positions,
    slots,
    kv_layer,
    eps,
    largest,
    latent_stride,
    block_stride,
    NUM_HEADS: tl.constexpr,
    RANK: tl.constexpr,
    HALF: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    HALF_WIDTH: tl.constexpr,
):
    ROW_DIM: tl.constexpr = RANK + 2 * HALF
    SCALE_BYTES: tl.constexpr = ROW_WIDTH - ROW_DIM
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    halves = tl.arange(0, HALF_WIDTH)
    in_half = halves < HALF
    turn = cos_sin + tl.load(positions + token) * 2 * HALF + halves
    cos = tl.load(turn, mask=in_half, other=1.0)
    sin = tl.load(turn + HALF, mask=in_half, other=0.0)
    if part == 0:
        slot = tl.load(slots + token)
        block = kv_layer + (slot // BLOCK) * block_stride
        _write_row(
            latent + token * latent_stride,
            block + (slot % BLOCK) * ROW_DIM,
            block + BLOCK * ROW_DIM + (slot % BLOCK) * SCALE_BYTES,
            weight,
            cos,
            sin,
            eps,
            largest,
            RANK,
            HALF,
            ROW_WIDTH != ROW_DIM,
            ROUNDS,
            WIDTH,
            HALF_WIDTH,
        )
    else:
        heads = (part - 1) * HEADS + tl.arange(0, HEADS)
        mask = (heads < NUM_HEADS)[:, None] & in_half[None, :]
        at = query + (token * NUM_HEADS + heads)[:, None] * ROW_DIM + RANK + halves[None, :]
        _rotate_queries(at, mask, cos, sin, HALF)


def write_latent(
    query: torch.Tensor,
    latent: torch.Tensor,
    norm: LatentNorm,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    kv_layer: torch.Tensor,
) -> None:
    """See kernels/reference/write_latent.py."""
    rope_dim = check_write_latent(query, latent, norm, cos_sin, positions, slots, kv_layer)
    require_contiguous("query", query)
    require_contiguous("cos_sin", cos_sin)
    require_same_device(query, latent, norm.weight, cos_sin, positions, slots, kv_layer)
    num_tokens, num_heads, row_dim = query.shape
    rank, half = row_dim - rope_dim, rope_dim // 2
    if num_tokens:
        with on_device_of(query):
            _write_latent[(num_tokens, 1 + triton.cdiv(num_heads, _HEADS))](
                query,
                latent,
                norm.weight,
                cos_sin,
                positions,
                slots,
                kv_layer,
                norm.eps,
                LARGEST.get(kv_layer.dtype, 1.0),
                latent.stride(0),
                kv_layer.stride(0),
                NUM_HEADS=num_heads,
                RANK=rank,
                HALF=half,
                ROW_WIDTH=kv_layer.shape[4],
                ROUNDS=kv_layer.dtype is torch.int8,
                BLOCK=kv_layer.shape[3],
                HEADS=_HEADS,
                WIDTH=next_power_of_2(rank),
                HALF_WIDTH=next_power_of_2(half),
                num_warps=4,
            )
