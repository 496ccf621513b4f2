"""Multi-head latent attention, absorbed: queries meet the latents where these are kept.

    x -> down -> [ query latent | kv latent | shared key ]
    query latent -> norm -> query_up -> per head [ nope | rope ]
    nope -> key_up -> a query in latent space          (W_uk moved to the query)
    attention over [ latent | rotated key ] -> per head a sum of latents
    sum of latents -> value_up -> per head a value     (W_uv moved to the output)

Against keys and values expanded per head, a score and its share of the sum take
(2 * kv_rank + rope_dim) instead of (nope_dim + rope_dim + value_dim) multiplications: 3.4 times as
many at DeepSeek's sizes, for 1 / (2 * num_heads) or less of the bytes read, which is what counts in
decode. A prompt's chunk pays them too: nothing is expanded.

Source: DeepSeek-V2 (2024), 2.1.2 and 2.1.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from cluster.models.card import DecoderConfig, LatentConfig, YarnRopeScaling
from engine.model.ragged_batch import RaggedBatch
from engine.model.rope_table import yarn_mscale
from engine.model.weights.latent_weights import LatentWeights
from kernels.dispatch import KernelSet
from kernels.latent import HeadLinear, LatentNorm
from kernels.linear import Linear

NORM_EPS = 1e-6
"""Of the norms of latents, whatever a configuration says of the others: as in DeepSeek's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryUp:
    """From a query's latent to the query, where queries have a rank."""

    norm: torch.Tensor  # float32 [query_rank]
    up: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """See Attention."""

    kernels: KernelSet
    config: LatentConfig
    num_heads: int
    down: Linear
    query_up: QueryUp | None
    kv_norm: LatentNorm
    key_up: HeadLinear
    value_up: HeadLinear
    o: Linear
    cos_sin: torch.Tensor  # float32 [max_context, 2, rope_dim / 2]
    scale: float

    @property
    def num_bytes(self) -> int:
        """See Attention."""
        parts = (self.down, self.key_up, self.value_up, self.o)
        up = 0 if self.query_up is None else self.query_up.up.num_bytes
        return up + sum(part.num_bytes for part in parts)

    def attend(self, x: torch.Tensor, kv_layer: torch.Tensor, batch: RaggedBatch) -> torch.Tensor:
        """See Attention; width is num_heads * kv_rank."""
        down = self.down(x)
        width = down.shape[1] - self.config.row_dim
        query, latent = self._absorbed(down[:, :width]), down[:, width:]
        self.kernels.write_latent(
            query, latent, self.kv_norm, self.cos_sin, batch.positions, batch.slots, kv_layer
        )
        return self.kernels.latent_attention(
            query, kv_layer, batch, self.scale, self.config.kv_rank
        )

    def project(self, attended: torch.Tensor) -> torch.Tensor:
        """See Attention."""
        num_rows, rank, value_dim = attended.shape[0], self.config.kv_rank, self.config.value_dim
        values = attended.new_empty((num_rows, self.num_heads, value_dim))
        self.value_up(attended.view(num_rows, self.num_heads, rank), values)
        return self.o(values.flatten(1))

    def _absorbed(self, down: torch.Tensor) -> torch.Tensor:
        """The query's columns of `down` -> [num_tokens, num_heads, row_dim], not rotated."""
        nope_dim, rank = self.config.nope_dim, self.config.kv_rank
        heads = self._up(down).view(down.shape[0], self.num_heads, -1)  # each [nope | rope]
        query = heads.new_empty((*heads.shape[:2], self.config.row_dim))
        self.key_up(heads[..., :nope_dim], query[..., :rank])
        query[..., rank:] = heads[..., nope_dim:]
        return query

    def _up(self, down: torch.Tensor) -> torch.Tensor:
        if self.query_up is None:
            return down
        normed = self.kernels.rms_norm(
            down.float().contiguous(), self.query_up.norm, NORM_EPS, down.dtype
        )
        return self.query_up.up(normed)


def build_latent_attention(
    kernels: KernelSet, weights: LatentWeights, config: DecoderConfig, cos_sin: torch.Tensor
) -> LatentAttention:
    """Takes the weights over. The configuration has a latent."""
    assert config.latent is not None
    query_up = None
    if weights.query_up is not None and weights.query_norm is not None:
        query_up = QueryUp(norm=weights.query_norm, up=kernels.pack_linear(weights.query_up))
    return LatentAttention(
        kernels=kernels,
        config=config.latent,
        num_heads=config.num_heads,
        down=kernels.pack_linear(weights.down),
        query_up=query_up,
        kv_norm=LatentNorm(weights.kv_norm, NORM_EPS),
        key_up=kernels.pack_heads(weights.key_up),
        value_up=kernels.pack_heads(weights.value_up),
        o=kernels.pack_linear(weights.o),
        cos_sin=cos_sin,
        scale=score_scale(config),
    )


def score_scale(config: DecoderConfig) -> float:
    """1 / sqrt(head_dim); with YaRN's mscale_all_dim, times its square, which the rotary table's
    magnitude leaves out for the part of a head that is not rotated."""
    rope, stretch = config.rope_scaling, 1.0
    if config.attention_scale is not None:
        return config.attention_scale
    if isinstance(rope, YarnRopeScaling) and rope.mscale_all_dim:
        stretch = yarn_mscale(rope.factor, rope.mscale_all_dim)
    return stretch * stretch / math.sqrt(config.head_dim)
