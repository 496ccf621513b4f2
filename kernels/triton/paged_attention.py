"""Attention of a ragged batch: decodes by the split kernel, chunks by the tiled one; padded drafts
by a split kernel of their own."""

from __future__ import annotations

import torch

from kernels.door import require, require_contiguous, require_same_device
from kernels.paged_queries import PagedQueries, check_attention
from kernels.triton.decode_attention import decode_attention
from kernels.triton.prefill_attention import prefill_attention
from kernels.triton.verify_attention import verify_attention


def paged_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """See kernels/reference/paged_attention.py. Rows of `query` may be strided."""
    check_attention(query, kv_layer, queries, window)
    require(scale > 0, f"scale is {scale}; needed: above 0")
    num_tokens, num_heads, head_dim = query.shape
    require(query.stride(2) == 1 and query.stride(1) == head_dim, "heads of query are strided")
    require_contiguous("block_tables", queries.block_tables)
    require_same_device(query, kv_layer, queries.context_lens, queries.block_tables)
    out = torch.empty((num_tokens, num_heads * head_dim), dtype=query.dtype, device=query.device)
    if queries.rows_each:
        verify_attention(query, kv_layer, queries, scale, out, window)
        return out
    if queries.num_decodes:
        decode_attention(query, kv_layer, queries, scale, out, window)
    if queries.num_decodes < queries.context_lens.shape[0]:
        prefill_attention(query, kv_layer, queries, scale, out, window)
    return out
