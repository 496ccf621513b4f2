"""Causal attention of ragged queries over paged keys and values, one sequence at a time."""

from __future__ import annotations

import torch

from kernels.kv_rows import read_blocks
from kernels.paged_queries import PagedQueries, check_attention


def paged_attention(
    query: torch.Tensor,
    kv_layer: torch.Tensor,
    queries: PagedQueries,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Each query row sees its sequence's tokens up to and including itself; with a `window`, the
    last `window` of these, itself among them.

    query     [num_tokens, num_heads, head_dim]
    kv_layer  [num_blocks, 2, num_kv_heads, block_size, head_dim]; or quantized, see kv_rows.py

    Returns [num_tokens, num_heads * head_dim] in the dtype of `query`.
    """
    check_attention(query, kv_layer, queries, window)
    out = torch.empty_like(query)
    starts = queries.query_starts.tolist()
    for seq, context_len in enumerate(queries.context_lens.tolist()):
        rows = slice(starts[seq], starts[seq + 1])
        keys, values = gather_sequence(kv_layer, queries.block_tables[seq], context_len)
        out[rows] = _attend(query[rows], keys, values, scale, window)
    return out.flatten(1)


def gather_sequence(
    kv_layer: torch.Tensor, block_table: torch.Tensor, context_len: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of one sequence, each [num_kv_heads, context_len, head_dim]; float32 out of a
    quantized pool."""
    _, _, num_kv_heads, block_size, _ = kv_layer.shape
    num_blocks = -(-context_len // block_size)
    blocks = read_blocks(kv_layer, block_table[:num_blocks])  # [num_blocks, 2, kv_heads, bs, dim]
    joined = blocks.permute(1, 2, 0, 3, 4).reshape(2, num_kv_heads, -1, blocks.shape[4])
    keys, values = joined[:, :, :context_len]
    return keys, values


def visible_tokens(
    num_queries: int, context_len: int, window: int | None, device: torch.device
) -> torch.Tensor:
    """Which tokens the last `num_queries` of a sequence see: bool [num_queries, context_len]."""
    seen = torch.ones(num_queries, context_len, dtype=torch.bool, device=device)
    last = context_len - num_queries  # the diagonal of what the first of them sees last
    seen = seen.tril(last)
    return seen if window is None else seen.triu(last - window + 1)


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, window: int | None
) -> torch.Tensor:
    num_queries, num_heads, _ = query.shape
    num_kv_heads, context_len, _ = keys.shape
    group = num_heads // num_kv_heads
    keys = keys.float().repeat_interleave(group, dim=0)
    values = values.float().repeat_interleave(group, dim=0)
    scores = torch.einsum("qhd,hkd->hqk", query.float(), keys) * scale
    hidden = ~visible_tokens(num_queries, context_len, window, query.device)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,hkd->qhd", weights, values).to(query.dtype)
