"""Paged attention by torch's own fused attention: where the native library cannot be built."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.paged_queries import PagedQueries, check_attention
from kernels.reference.paged_attention import gather_sequence, visible_tokens


def paged_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """See kernels/reference/paged_attention.py. Gathers one sequence at a time."""
    check_attention(query, kv_layer, queries, window)
    out = torch.empty_like(query)
    starts = queries.query_starts.tolist()
    for seq, context_len in enumerate(queries.context_lens.tolist()):
        rows = slice(starts[seq], starts[seq + 1])
        keys, values = gather_sequence(kv_layer, queries.block_tables[seq], context_len)
        out[rows] = F.scaled_dot_product_attention(
            query[rows].transpose(0, 1)[None],
            keys[None].to(query.dtype),
            values[None].to(query.dtype),
            attn_mask=_mask(starts[seq + 1] - starts[seq], context_len, window),
            scale=scale,
            enable_gqa=True,
        )[0].transpose(0, 1)
    return out.flatten(1)


def _mask(num_queries: int, context_len: int, window: int | None) -> torch.Tensor | None:
    """bool [num_queries, context_len]; None when everything is visible."""
    if num_queries == 1 and (window is None or window >= context_len):
        return None
    return visible_tokens(num_queries, context_len, window, torch.device("cpu"))
