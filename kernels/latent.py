"""The interfaces of multi-head latent attention (DeepSeek-V2, 2024, 2.1).

A token keeps one row: its latent, normed, then the key that all heads share, rotated. Queries come
to the row's space (absorbed): attention needs no keys and values per head.

    row    [kv_rank | rope_dim]        row_dim = kv_rank + rope_dim
    query  [kv_rank | rope_dim]        per head
    value   kv_rank                    the first value_dim columns of the row
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.door import require, require_dtype, require_shape
from kernels.paged_queries import KV_SCALE_BYTES, QUANTIZED_KV, PagedQueries, check_tables


class HeadLinear(Protocol):
    """One matrix per head, owned and packed."""

    @property
    def num_bytes(self) -> int:
        """Memory held."""

    def __call__(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """x [num_rows, num_heads, in] -> out [num_rows, num_heads, out], of one dtype.

        Both may be slices of wider rows; their last dimension is contiguous.
        """


PackHeads = Callable[[torch.Tensor], HeadLinear]
"""Takes a weight [num_heads, out, in]; the caller drops its reference."""


@dataclass(frozen=True, slots=True)
class LatentNorm:
    """The root-mean-square norm of the latent."""

    weight: torch.Tensor  # float32 [kv_rank]
    eps: float


class WriteLatentKernel(Protocol):
    """See kernels/reference/write_latent.py."""

    def __call__(
        self,
        query: torch.Tensor,
        latent: torch.Tensor,
        norm: LatentNorm,
        cos_sin: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        kv_layer: torch.Tensor,
    ) -> None: ...


class LatentAttentionKernel(Protocol):
    """See kernels/reference/latent_attention.py."""

    def __call__(
        self,
        query: torch.Tensor,
        kv_layer: torch.Tensor,
        queries: PagedQueries,
        scale: float,
        value_dim: int,
    ) -> torch.Tensor: ...


def check_latent_layer(kv_layer: torch.Tensor) -> tuple[int, int]:
    """A layer of a pool of latents, [num_blocks, 1, 1, block_size, row_dim], without gaps inside a
    block; rows of a quantized one are nominally 4 longer. Returns (block_size, row_dim)."""
    require(kv_layer.dim() == 5, f"kv_layer has {kv_layer.dim()} dimensions; needed: 5")
    _, planes, heads, block_size, width = kv_layer.shape
    require(
        planes == heads == 1 and kv_layer.stride()[3:] == (width, 1),
        f"kv_layer {tuple(kv_layer.shape)} of strides {kv_layer.stride()} is not a layer of a "
        "pool of latents",
    )
    return block_size, width - (KV_SCALE_BYTES if kv_layer.dtype in QUANTIZED_KV else 0)


def require_kv_dtype(kv_layer: torch.Tensor, dtype: torch.dtype) -> None:
    """The queries', or that of a quantized pool."""
    require_dtype("kv_layer", kv_layer, dtype, *QUANTIZED_KV)


def check_latent_attention(
    query: torch.Tensor, kv_layer: torch.Tensor, queries: PagedQueries, value_dim: int
) -> None:
    """The door of every latent_attention."""
    _, row_dim = check_latent_layer(kv_layer)
    require(query.dim() == 3, f"query has {query.dim()} dimensions; needed: 3")
    require_shape("query", query, (*query.shape[:2], row_dim))
    require_kv_dtype(kv_layer, query.dtype)
    require(1 <= value_dim <= row_dim, f"value_dim is {value_dim}; needed: 1 to {row_dim}")
    check_tables(queries)


def check_write_latent(
    query: torch.Tensor,
    latent: torch.Tensor,
    norm: LatentNorm,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    kv_layer: torch.Tensor,
) -> int:
    """The door of every write_latent; returns rope_dim."""
    _, row_dim = check_latent_layer(kv_layer)
    num_tokens, rank = latent.shape[0], norm.weight.shape[0]
    rope_dim = row_dim - rank
    require(rope_dim > 0 and rope_dim % 2 == 0, f"a row of {row_dim} with a latent of {rank}")
    require_shape("latent", latent, (num_tokens, row_dim))
    require(latent.stride(1) == 1, "latent needs its last dimension contiguous")
    require_shape("query", query, (num_tokens, query.shape[1], row_dim))
    require_shape("cos_sin", cos_sin, (cos_sin.shape[0], 2, rope_dim // 2))
    require_dtype("norm.weight", norm.weight, torch.float32)
    require_dtype("cos_sin", cos_sin, torch.float32)
    for name, tensor in (("positions", positions), ("slots", slots)):
        require_shape(name, tensor, (num_tokens,))
        require_dtype(name, tensor, torch.int64)
    require_dtype("latent", latent, query.dtype)
    require_kv_dtype(kv_layer, query.dtype)
    return rope_dim
