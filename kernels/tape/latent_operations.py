"""The operations of multi-head latent attention (`kernels/latent.py`).

Rows of heads lie side by side: [num_rows, num_heads * width of a head].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.door import require
from kernels.latent import HeadLinear, LatentNorm
from kernels.tape.operations import Operation
from kernels.tape.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeColumns(Operation):
    """Columns of wider rows from `first` on, as many as `out` has: a view of them."""

    rows: Rows
    first: int
    out: Rows

    def __post_init__(self) -> None:
        end = self.first + self.out.width
        require(end <= self.rows.width, f"columns to {end} of {self.rows.width}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsorbQuery(Operation):
    """Per head [nope | rope] -> [key_up(nope) | rope]: a query in the space of latents."""

    key_up: HeadLinear
    heads: Rows  # num_heads * (nope_dim + rope_dim)
    num_heads: int
    rope_dim: int
    out: Rows  # num_heads * (kv_rank + rope_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLatent(Operation):
    """Norms the latent, rotates the shared key, writes both to the pool; rotates the query."""

    query: Rows  # num_heads * row_dim
    num_heads: int
    latent: Rows  # row_dim
    norm: LatentNorm
    cos_sin: torch.Tensor  # float32 [max_context, 2, rope_dim / 2]
    layer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttendLatent(Operation):
    """Per head a sum of the latents that it attends to."""

    query: Rows  # num_heads * row_dim
    num_heads: int
    layer: int
    scale: float
    value_dim: int
    out: Rows  # num_heads * value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadProduct(Operation):
    """Each head by a matrix of its own."""

    matrix: HeadLinear
    x: Rows
    num_heads: int
    out: Rows
