"""Causal attention of ragged, absorbed queries over paged latents, one sequence at a time.

Source: DeepSeek-V2 (2024), 2.1.2: the matrices from latents to keys and values move to the queries
and to the output. All heads read the same rows, which are keys and, in part, values.
"""

from __future__ import annotations

import torch

from kernels.kv_rows import read_blocks
from kernels.latent import check_latent_attention
from kernels.paged_queries import PagedQueries


def latent_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    value_dim: int,
) -> torch.Tensor:
    """Each query row sees its sequence's tokens up to and including itself.

    query     [num_tokens, num_heads, row_dim]
    kv_layer  [num_blocks, 1, 1, block_size, row_dim]; values are the first value_dim columns

    Returns [num_tokens, num_heads * value_dim] in the dtype of `query`.
    """
    check_latent_attention(query, kv_layer, queries, value_dim)
    out = query.new_empty((*query.shape[:2], value_dim))
    starts = queries.query_starts.tolist()
    for seq, context_len in enumerate(queries.context_lens.tolist()):
        rows = slice(starts[seq], starts[seq + 1])
        latents = gather_latents(kv_layer, queries.block_tables[seq], context_len)
        out[rows] = _attend(query[rows], latents, scale, value_dim)
    return out.flatten(1)


def gather_latents(
    kv_layer: torch.Tensor, block_table: torch.Tensor, context_len: int
) -> torch.Tensor:
    """The rows of one sequence, [context_len, row_dim]; float32 out of a quantized pool."""
    num_blocks = -(-context_len // kv_layer.shape[3])
    return read_blocks(kv_layer, block_table[:num_blocks]).flatten(0, 3)[:context_len]


def _attend(
    query: torch.Tensor, latents: torch.Tensor, scale: float, value_dim: int
) -> torch.Tensor:
    num_queries, context_len = query.shape[0], latents.shape[0]
    rows = latents.float()
    scores = torch.einsum("qhd,kd->hqk", query.float(), rows) * scale
    last_seen = torch.arange(context_len - num_queries, context_len, device=query.device)
    hidden = torch.arange(context_len, device=query.device) > last_seen[:, None]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,kd->qhd", weights, rows[:, :value_dim]).to(query.dtype)
