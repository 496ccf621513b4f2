"""Attention over paged latents: decodes by the split kernel, chunks by the tiled one."""

from __future__ import annotations

import torch

from kernels.door import require, require_contiguous, require_same_device
from kernels.latent import check_latent_attention
from kernels.paged_queries import PagedQueries
from kernels.triton.decode_latent import decode_latent
from kernels.triton.prefill_latent import prefill_latent


def latent_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    value_dim: int,
) -> torch.Tensor:
    """See kernels/reference/latent_attention.py. `query` is contiguous."""
    check_latent_attention(query, kv_layer, queries, value_dim)
    num_tokens, num_heads, row_dim = query.shape
    require(scale > 0, f"scale is {scale}; needed: above 0")
    require(value_dim <= 512, f"value_dim is {value_dim}; the Triton attention takes up to 512")
    require_contiguous("query", query)
    require_contiguous("block_tables", queries.block_tables)
    require_same_device(query, kv_layer, queries.context_lens, queries.block_tables)
    out = torch.empty((num_tokens, num_heads * value_dim), dtype=query.dtype, device=query.device)
    if queries.num_decodes:
        decode_latent(query, kv_layer, queries, scale, value_dim, out)
    if queries.num_decodes < queries.context_lens.shape[0]:
        prefill_latent(query, kv_layer, queries, scale, value_dim, out)
    return out
