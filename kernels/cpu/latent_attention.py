"""Latent attention by torch's matrix products: where the native library cannot be built."""

from __future__ import annotations

import torch

from kernels.latent import check_latent_attention
from kernels.paged_queries import PagedQueries
from kernels.reference.latent_attention import gather_latents

MAX_SCORES = 1 << 22
"""Scores held at once; a longer chunk of a sequence goes in parts."""


def latent_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    value_dim: int,
) -> torch.Tensor:
    """See kernels/reference/latent_attention.py. Gathers one sequence at a time."""
    check_latent_attention(query, kv_layer, queries, value_dim)
    num_heads = query.shape[1]
    out = query.new_empty((*query.shape[:2], value_dim))
    starts = queries.query_starts.tolist()
    for seq, context_len in enumerate(queries.context_lens.tolist()):
        latents = gather_latents(kv_layer, queries.block_tables[seq], context_len).to(query.dtype)
        at_once = max(1, MAX_SCORES // (num_heads * context_len))
        for first in range(starts[seq], starts[seq + 1], at_once):
            end = min(first + at_once, starts[seq + 1])
            seen = latents[: context_len - (starts[seq + 1] - end)]
            out[first:end] = _attend(query[first:end], seen, scale, value_dim)
    return out.flatten(1)


def _attend(
    query: torch.Tensor, latents: torch.Tensor, scale: float, value_dim: int
) -> torch.Tensor:
    """query [n, num_heads, row_dim], the last of latents [m, row_dim] its last token's own."""
    num_queries, num_heads, _ = query.shape
    scores = (query.flatten(0, 1) @ latents.t()).float().view(num_queries, num_heads, -1) * scale
    if num_queries > 1:
        seen = torch.ones(num_queries, len(latents), dtype=torch.bool)
        hidden = ~seen.tril(len(latents) - num_queries)
        scores.masked_fill_(hidden[:, None], float("-inf"))
    weights = scores.softmax(dim=-1).to(query.dtype).flatten(0, 1)
    return (weights @ latents[:, :value_dim]).view(num_queries, num_heads, value_dim)
