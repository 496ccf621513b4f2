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
from cluster.models.model_split import ModelSplit
from engine.model.layers.rope_table import yarn_mscale
from engine.model.weights.latent_weights import LatentWeights
from kernels.latent import HeadLinear, LatentNorm
from kernels.linear import Linear
from kernels.tape.kernel_set import KernelSet
from kernels.tape.latent_operations import (
    AbsorbQuery,
    AttendLatent,
    HeadProduct,
    TakeColumns,
    WriteLatent,
)
from kernels.tape.rows import Rows
from kernels.tape.tape import Tape

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

    config: LatentConfig
    num_heads: int
    """Of the rank; each has the whole latents."""
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

    def attend(self, tape: Tape, x: Rows, layer: int) -> Rows:
        """See Attention; width is num_heads * kv_rank."""
        down, heads = tape.linear(self.down, x, "down"), self.num_heads
        width = down.width - self.config.row_dim
        query = self._absorbed(tape, take_columns(tape, down, (0, width), "query columns"))
        latent = take_columns(tape, down, (width, down.width), "latent")
        norm, cos_sin = self.kv_norm, self.cos_sin
        tape.add(
            WriteLatent(
                query=query,
                num_heads=heads,
                latent=latent,
                norm=norm,
                cos_sin=cos_sin,
                layer=layer,
            )
        )
        rank = self.config.kv_rank
        out = tape.rows("attended", heads * rank)
        tape.add(
            AttendLatent(
                query=query,
                num_heads=heads,
                layer=layer,
                scale=self.scale,
                value_dim=rank,
                out=out,
            )
        )
        return out

    def project(self, tape: Tape, attended: Rows) -> Rows:
        """See Attention."""
        heads = self.num_heads
        values = tape.rows("values", heads * self.config.value_dim)
        tape.add(HeadProduct(matrix=self.value_up, x=attended, num_heads=heads, out=values))
        return tape.to_residual(tape.linear(self.o, values, "branch"))

    def _absorbed(self, tape: Tape, query: Rows) -> Rows:
        """The query's columns of `down` -> num_heads * row_dim, not rotated."""
        heads = query
        if self.query_up is not None:
            normed = tape.branch_norm(query, self.query_up.norm, NORM_EPS, "query latent")
            heads = tape.linear(self.query_up.up, normed, "query heads")
        out = tape.rows("query", self.num_heads * self.config.row_dim)
        tape.add(
            AbsorbQuery(
                key_up=self.key_up,
                heads=heads,
                num_heads=self.num_heads,
                rope_dim=self.config.rope_dim,
                out=out,
            )
        )
        return out


def take_columns(tape: Tape, rows: Rows, span: tuple[int, int], name: str) -> Rows:
    """A view of the columns [first, end)."""
    first, end = span
    out = tape.rows(name, end - first, rows.dtype)
    tape.add(TakeColumns(rows=rows, first=first, out=out))
    return out


def build_latent_attention(
    kernels: KernelSet, weights: LatentWeights, split: ModelSplit, cos_sin: torch.Tensor
) -> LatentAttention:
    """Takes the weights over. The configuration has a latent."""
    config = split.config
    assert config.latent is not None
    query_up = None
    if weights.query_up is not None and weights.query_norm is not None:
        query_up = QueryUp(norm=weights.query_norm, up=kernels.pack_linear(weights.query_up))
    return LatentAttention(
        config=config.latent,
        num_heads=len(split.heads),
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
