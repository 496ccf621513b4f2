"""Root-mean-square norm of each head of Q and K, before they are rotated (Qwen 3, Gemma 3)."""

from __future__ import annotations

import torch

from kernels.door import require_dtype, require_shape


def check_head_norm(
    qkv: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> int:
    """The door of every head_norm; returns head_dim."""
    (head_dim,) = query_weight.shape
    require_shape("qkv", qkv, (qkv.shape[0], (num_heads + 2 * num_kv_heads) * head_dim))
    require_shape("key_weight", key_weight, (head_dim,))
    require_dtype("query_weight", query_weight, torch.float32)
    require_dtype("key_weight", key_weight, torch.float32)
    return head_dim


def head_norm(
    qkv: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    eps: float,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    """Norms the heads of Q and of K in place, in float32, rounded once; V stays as it is.

    qkv         [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim], all Q, then K, then V
    *_weight    float32 [head_dim]
    """
    head_dim = check_head_norm(qkv, query_weight, key_weight, num_heads, num_kv_heads)
    heads = qkv.view(qkv.shape[0], num_heads + 2 * num_kv_heads, head_dim)
    keys = heads[:, num_heads : num_heads + num_kv_heads]
    for part, weight in ((heads[:, :num_heads], query_weight), (keys, key_weight)):
        values = part.float()
        scale = torch.rsqrt(values.square().mean(dim=-1, keepdim=True) + eps)
        part.copy_(values * scale * weight)
