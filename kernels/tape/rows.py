"""The nouns of a tape: rows that a step will compute, and how a row of heads is divided."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.door import require


@dataclass(frozen=True, slots=True)
class Rows:
    """Activations that a step will compute: [num_rows, width], at a place.

    What is written to a place replaces what it held.
    """

    place: int
    width: int
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        """Memory of one row."""
        return self.width * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyPart:
    """A rank's rows of an embedding: those of the tokens from `first_token` on."""

    first_token: int
    vocab_size: int
    """Of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QkvHeads:
    """How a row of Q, K and V is divided: all heads of Q, then of K, then of V."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        heads, kv_heads = self.num_heads, self.num_kv_heads
        shares = heads > 0 and kv_heads > 0 and heads % kv_heads == 0
        require(shares, f"{heads} query heads share {kv_heads} KV heads")

    @property
    def query_width(self) -> int:
        """Values of Q."""
        return self.num_heads * self.head_dim

    @property
    def width(self) -> int:
        """Values of Q, K and V."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
