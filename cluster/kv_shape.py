"""What a KV cache keeps of one token, and the bytes that it takes: a model states it, the engine
plans with it, the router prices it."""

from __future__ import annotations

from dataclasses import dataclass

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Of one value, by the dtype's name."""
KV_SCALE_BYTES = 4
"""A float32 per row of a quantized cache, whose values take a byte each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """A row per layer, plane and head."""

    num_layers: int
    num_planes: int
    """2: keys and values; 1: a latent that is both."""
    num_kv_heads: int
    head_dim: int
    """Values of a row: of a head, or of a latent."""

    def token_bytes(self, *, dtype: str, kv: str) -> int:
        """`kv` is "auto" for a cache in `dtype`; every other format is a quantized one."""
        row_bytes = self.head_dim + KV_SCALE_BYTES
        if kv == "auto":
            row_bytes = self.head_dim * ITEM_BYTES[dtype]
        return self.num_layers * self.num_planes * self.num_kv_heads * row_bytes
