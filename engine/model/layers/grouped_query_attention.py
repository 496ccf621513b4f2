"""Attention with rotary positions whose query heads share KV heads in groups (GQA, MQA, MHA).

Source: Ainslie et al., "GQA", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.model.layers.head_norm import HeadNorm
from engine.model.ragged_batch import RaggedBatch
from kernels.cpu.tape import Rows, Tape
from kernels.dispatch import KernelSet
from kernels.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQueryAttention:
    """See Attention."""

    kernels: KernelSet
    qkv: Linear
    o: Linear
    cos_sin: torch.Tensor  # float32 [max_context, 2, head_dim / 2]
    scale: float
    window: int | None = None
    """Tokens seen, itself among them; None: all before."""
    head_norm: HeadNorm | None = None

    @property
    def num_bytes(self) -> int:
        """See Attention."""
        return self.qkv.num_bytes + self.o.num_bytes

    def attend(self, x: torch.Tensor, kv_layer: torch.Tensor, batch: RaggedBatch) -> torch.Tensor:
        """See Attention; width is num_heads * head_dim."""
        qkv = self.qkv(x)
        if self.head_norm is not None:
            self.head_norm(qkv)
        query = self.kernels.rope_write_kv(
            qkv, self.cos_sin, batch.positions, batch.slots, kv_layer
        )
        return self.kernels.paged_attention(query, kv_layer, batch, self.scale, self.window)

    def project(self, attended: torch.Tensor) -> torch.Tensor:
        """See Attention."""
        return self.o(attended)

    def record_attend(self, tape: Tape, x: Rows, layer: int) -> Rows:
        """See engine/model/layers/recorded.py."""
        qkv = tape.linear(self.qkv, x, "qkv")
        if self.head_norm is not None:
            self.head_norm.record(tape, qkv)
        tape.rope_write_kv(qkv, self.cos_sin, layer)
        return tape.paged_attention(qkv, layer, self.scale, self.window)

    def record_project(self, tape: Tape, attended: Rows) -> Rows:
        """See engine/model/layers/recorded.py."""
        return tape.linear(self.o, attended, "branch")
