"""The weights of multi-head latent attention, in the form in which the decoder multiplies them.

    kv_b_proj     per head [nope | value] x kv_rank  ->  key_up and value_up
    q_b_proj      per head [nope | rope]
    kv_a_proj     [kv_rank | rope]                   ->  below q_a_proj (or q_proj): one input

Where the checkpoint rotates neighbouring values, the rows that make them are put halves apart, in
queries and keys alike: scores are the same sums in another order, and kernels know halves only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.models.card import DecoderConfig, LatentConfig
from cluster.models.latent_tensors import (
    KV_DOWN,
    KV_NORM,
    KV_UP,
    OUTPUT,
    QUERY,
    QUERY_DOWN,
    QUERY_NORM,
    QUERY_UP,
)
from engine.model.weights.weight_reader import WeightReader
from kernels.weight_rows import concat_rows, take_rows
from kernels.weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentWeights:
    """Matrices are [out, in]; norms float32. Queries are heads of [nope | rope], a rank's own."""

    down: Weight  # [query_rank + row_dim, hidden]; without rank [num_heads * head_dim + row_dim, h]
    query_norm: torch.Tensor | None  # [query_rank]
    query_up: Weight | None  # [num_heads * head_dim, query_rank]
    kv_norm: torch.Tensor  # [kv_rank]
    key_up: torch.Tensor  # [num_heads, kv_rank, nope_dim]: from a query's part to latent space
    value_up: torch.Tensor  # [num_heads, value_dim, kv_rank]
    o: Weight  # [hidden, num_heads * value_dim]


def latent_weights(
    reader: WeightReader, prefix: str, config: DecoderConfig, latent: LatentConfig
) -> LatentWeights:
    """Of the attention whose tensors' names begin with `prefix`."""
    num_heads = len(reader.split.heads)
    has_rank = latent.query_rank is not None
    query = _rows_apart(
        reader.matrix(prefix + (QUERY_UP if has_rank else QUERY)),
        config,
        num_heads,
        latent.nope_dim,
    )
    kv = _rows_apart(reader.matrix(prefix + KV_DOWN), config, 1, latent.kv_rank)
    key_up, value_up = _by_head(reader.plain(prefix + KV_UP), num_heads, latent)
    return LatentWeights(
        down=concat_rows([reader.matrix(prefix + QUERY_DOWN) if has_rank else query, kv]),
        query_norm=reader.exact(prefix + QUERY_NORM) if has_rank else None,
        query_up=query if has_rank else None,
        kv_norm=reader.exact(prefix + KV_NORM),
        key_up=key_up,
        value_up=value_up,
        o=reader.matrix(prefix + OUTPUT),
    )


def rotated_rows_apart(num_blocks: int, plain_dim: int, rope_dim: int) -> torch.Tensor:
    """Which rows to take: in each block of [plain_dim | rope_dim], the rotated rows 0, 1, 2, 3...
    become 0, 2, 4... and then 1, 3, 5...; int64 [num_blocks * (plain_dim + rope_dim)]."""
    rotated = torch.arange(rope_dim).view(-1, 2).t().flatten()
    block = torch.cat((torch.arange(plain_dim), plain_dim + rotated))
    starts = torch.arange(num_blocks) * (plain_dim + rope_dim)
    return (starts[:, None] + block).flatten()


def _rows_apart(weight: Weight, config: DecoderConfig, num_blocks: int, plain_dim: int) -> Weight:
    if not config.rope_is_interleaved:
        return weight
    rope_dim = weight.shape[0] // num_blocks - plain_dim
    device = (weight if isinstance(weight, torch.Tensor) else weight.values).device
    return take_rows(weight, rotated_rows_apart(num_blocks, plain_dim, rope_dim).to(device))


def _by_head(
    kv_up: torch.Tensor, num_heads: int, latent: LatentConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """kv_up [num_heads * (nope + value), rank] -> [num_heads, rank, nope], [.., value, rank]."""
    heads = kv_up.view(num_heads, latent.nope_dim + latent.value_dim, latent.kv_rank)
    keys, values = heads[:, : latent.nope_dim], heads[:, latent.nope_dim :]
    return keys.transpose(1, 2).contiguous(), values.contiguous()
