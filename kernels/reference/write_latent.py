"""A token's latent is normed, the shared key and the queries are rotated, the row goes to its slot.

Source: DeepSeek-V2 (2024), 2.1.3; rotary halves as in `rope_write_kv`.
"""

from __future__ import annotations

import torch

from kernels.kv_rows import write_rows
from kernels.latent import LatentNorm, check_write_latent


def write_latent(
    query: torch.Tensor,
    latent: torch.Tensor,
    norm: LatentNorm,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    kv_layer: torch.Tensor,
) -> None:
    """Writes rows into the pool, and rotates the last rope_dim columns of every query in place.

    query      [num_tokens, num_heads, row_dim], contiguous
    latent     [num_tokens, row_dim], rows contiguous, not normed or rotated; may be overwritten
    cos_sin    float32 [max_context, 2, rope_dim / 2]
    positions  int64 [num_tokens]; slots int64 [num_tokens], block_id * block_size + offset
    kv_layer   [num_blocks, 1, 1, block_size, row_dim], written; a quantized one
               (kernels/kv_rows.py) from the row before it is rounded
    """
    rope_dim = check_write_latent(query, latent, norm, cos_sin, positions, slots, kv_layer)
    rank = latent.shape[1] - rope_dim
    rotation = cos_sin[positions]  # [num_tokens, 2, rope_dim / 2]
    parts = (_normed(latent[:, :rank], norm), _rotated(latent[:, rank:], rotation))
    write_rows(kv_layer, 0, slots, torch.cat(parts, dim=-1)[:, None])
    query[..., rank:] = _rotated(query[..., rank:], rotation[:, :, None]).to(query.dtype)


def _normed(latent: torch.Tensor, norm: LatentNorm) -> torch.Tensor:
    values = latent.float()
    scale = torch.rsqrt(values.square().mean(dim=-1, keepdim=True) + norm.eps)
    return values * scale * norm.weight


def _rotated(values: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    cos, sin = rotation.unbind(dim=1)
    low, high = values.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
