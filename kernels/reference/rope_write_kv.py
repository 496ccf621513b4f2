"""Rotary positions (Su et al., 2021; halves, as in Hugging Face), then K and V go into the pool."""

from __future__ import annotations

import torch

from kernels.door import require_dtype, require_shape
from kernels.kv_rows import write_rows
from kernels.paged_queries import QUANTIZED_KV, check_kv_layer


def check_rope_write_kv(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    kv_layer: torch.Tensor,
) -> int:
    """The door of every rope_write_kv; returns the number of query heads."""
    num_kv_heads, head_dim = check_kv_layer(kv_layer)
    num_tokens, width = qkv.shape
    num_heads = width // head_dim - 2 * num_kv_heads
    if width % head_dim or num_heads <= 0:
        raise ValueError(
            f"qkv of width {width} does not hold {num_kv_heads} KV heads of {head_dim} and queries"
        )
    require_shape("positions", positions, (num_tokens,))
    require_shape("slots", slots, (num_tokens,))
    require_dtype("positions", positions, torch.int64)
    require_dtype("slots", slots, torch.int64)
    require_dtype("cos_sin", cos_sin, torch.float32)
    if kv_layer.dtype not in QUANTIZED_KV:
        require_dtype("kv_layer", kv_layer, qkv.dtype)
    require_shape("cos_sin", cos_sin, (cos_sin.shape[0], 2, head_dim // 2))
    return num_heads


def rope_write_kv(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    kv_layer: torch.Tensor,
) -> torch.Tensor:
    """Rotates Q and K of each token by its position and writes K and V to the token's slot.

    qkv        [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim], all Q, then K, then V;
               the part of Q may be overwritten
    cos_sin    float32 [max_context, 2, head_dim / 2]
    positions  int64 [num_tokens]; slots int64 [num_tokens], block_id * block_size + offset
    kv_layer   [num_blocks, 2, num_kv_heads, block_size, head_dim], written; a quantized one
               (kernels/kv_rows.py) from the rotated rows before they are rounded

    Returns the rotated Q, [num_tokens, num_heads, head_dim].
    """
    num_heads = check_rope_write_kv(qkv, cos_sin, positions, slots, kv_layer)
    num_kv_heads, head_dim = kv_layer.shape[2], cos_sin.shape[2] * 2
    heads = qkv.view(qkv.shape[0], num_heads + 2 * num_kv_heads, head_dim)
    key_end = num_heads + num_kv_heads
    query, key, value = heads[:, :num_heads], heads[:, num_heads:key_end], heads[:, key_end:]
    rotation = cos_sin[positions].unsqueeze(2)  # [num_tokens, 2, 1, head_dim / 2]
    write_rows(kv_layer, 0, slots, _rotate(key, rotation))
    write_rows(kv_layer, 1, slots, value)
    return _rotate(query, rotation).to(qkv.dtype)


def _rotate(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    cos, sin = rotation.unbind(dim=1)
    low, high = heads.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
