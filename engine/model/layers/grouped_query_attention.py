"""Attention with rotary positions whose query heads share KV heads in groups (GQA, MQA, MHA).

Source: Ainslie et al., "GQA", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.model.layers.qk_norm import QkNorm
from kernels.adapters import AdapterSite
from kernels.linear import Linear
from kernels.tape.rows import QkvHeads, Rows
from kernels.tape.tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQueryAttention:
    """See Attention."""

    qkv: Linear
    o: Linear
    heads: QkvHeads
    cos_sin: torch.Tensor  # float32 [max_context, 2, head_dim / 2]
    scale: float
    window: int | None = None
    """Tokens seen, itself among them; None: all before."""
    qk_norm: QkNorm | None = None
    qkv_adapters: AdapterSite | None = None
    o_adapters: AdapterSite | None = None

    @property
    def num_bytes(self) -> int:
        """See Attention."""
        return self.qkv.num_bytes + self.o.num_bytes

    def attend(self, tape: Tape, x: Rows, layer: int) -> Rows:
        """See Attention; width is num_heads * head_dim."""
        qkv = tape.adapt(self.qkv_adapters, x, tape.linear(self.qkv, x, "qkv"))
        if self.qk_norm is not None:
            self.qk_norm.record(tape, qkv, self.heads)
        query = tape.rope_write_kv(qkv, self.heads, self.cos_sin, layer)
        return tape.paged_attention(query, self.heads, layer, self.scale, self.window)

    def project(self, tape: Tape, attended: Rows) -> Rows:
        """See Attention."""
        branch = tape.linear(self.o, attended, "branch")
        return tape.to_residual(tape.adapt(self.o_adapters, attended, branch))
