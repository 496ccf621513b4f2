"""Rows of a KV pool's layer: written and read by torch, in every dtype a pool has.

A plain pool holds rows as they are. A quantized one (`QUANTIZED_KV`) holds, in each (block, plane,
head), one-byte values [block_size, head_dim] and then float32 scales [block_size]; its tensor is
nominally [num_blocks, num_planes, num_kv_heads, block_size, head_dim + 4].
"""

from __future__ import annotations

import torch

from kernels.paged_queries import KV_SCALE_BYTES, QUANTIZED_KV

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""What the largest value of a row becomes."""


def quantize_rows(rows: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., head_dim] -> values of `dtype` and float32 scales [...]; row = values * scale.

    scale = max |row| / 127 (int8) or / 448 (float8_e4m3fn); values are rounded to nearest, ties to
    even. A row of zeros has scale 0.
    """
    rows, largest = rows.float(), LARGEST[dtype]
    scales = rows.abs().amax(dim=-1) / largest
    divisors = torch.where(scales > 0, scales, 1.0).unsqueeze(-1)
    values = (rows / divisors).clamp(-largest, largest)
    return (values.round() if dtype is torch.int8 else values).to(dtype), scales


def row_values(kv_layer: torch.Tensor) -> torch.Tensor:
    """A view, [num_blocks, num_planes, num_kv_heads, block_size, head_dim]."""
    if kv_layer.dtype not in QUANTIZED_KV:
        return kv_layer
    *outer, block_size, width = kv_layer.shape
    head_dim = width - KV_SCALE_BYTES
    return kv_layer.as_strided(
        (*outer, block_size, head_dim), (*kv_layer.stride()[:3], head_dim, 1)
    )


def row_scales(kv_layer: torch.Tensor) -> torch.Tensor:
    """A view of a quantized layer's scales, float32 [num_blocks, num_planes, num_kv_heads,
    block_size]."""
    *outer, block_size, width = kv_layer.shape
    offset = kv_layer.storage_offset() + block_size * (width - KV_SCALE_BYTES)
    in_bytes = kv_layer.as_strided(
        (*outer, block_size * KV_SCALE_BYTES), (*kv_layer.stride()[:3], 1), offset
    )
    return in_bytes.view(torch.float32)


def write_rows(kv_layer: torch.Tensor, plane: int, slots: torch.Tensor, rows: torch.Tensor) -> None:
    """Puts rows [num_tokens, num_kv_heads, head_dim] into slots, int64 [num_tokens]."""
    block_size = kv_layer.shape[3]
    blocks, offsets = slots // block_size, slots % block_size
    if kv_layer.dtype in QUANTIZED_KV:
        rows, scales = quantize_rows(rows, kv_layer.dtype)
        row_scales(kv_layer)[blocks, plane, :, offsets] = scales
    row_values(kv_layer)[blocks, plane, :, offsets] = rows.to(kv_layer.dtype)


def read_blocks(kv_layer: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    """Blocks [num_chosen, num_planes, num_kv_heads, block_size, head_dim], copied; float32 out of a
    quantized pool, else as they are."""
    chosen = block_ids.long()
    values = row_values(kv_layer)[chosen]
    if kv_layer.dtype not in QUANTIZED_KV:
        return values
    return values.float() * row_scales(kv_layer)[chosen].unsqueeze(-1)
