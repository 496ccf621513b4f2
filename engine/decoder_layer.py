"""One layer of a Llama-family decoder, its matrices packed for the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.ragged_batch import RaggedBatch
from engine.weights.llama_weights import LayerWeights
from kernels.dispatch import KernelSet
from kernels.linear import Linear


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Attention and feed-forward. The norms run between the halves, in the decoder."""

    kernels: KernelSet
    input_norm: torch.Tensor
    qkv: Linear
    o: Linear
    post_attention_norm: torch.Tensor
    gate_up: Linear
    down: Linear

    @classmethod
    def pack(cls, weights: LayerWeights, kernels: KernelSet) -> DecoderLayer:
        """Takes the weights over; the caller keeps no reference."""
        return cls(
            kernels=kernels,
            input_norm=weights.input_norm.float(),
            qkv=kernels.pack_linear(weights.qkv, weights.qkv_bias),
            o=kernels.pack_linear(weights.o, weights.o_bias),
            post_attention_norm=weights.post_attention_norm.float(),
            gate_up=kernels.pack_linear(weights.gate_up, weights.gate_up_bias),
            down=kernels.pack_linear(weights.down, weights.down_bias),
        )

    @property
    def num_bytes(self) -> int:
        """Memory of the matrices."""
        return sum(matrix.num_bytes for matrix in (self.qkv, self.o, self.gate_up, self.down))

    def attend(
        self,
        x: torch.Tensor,
        kv_layer: torch.Tensor,
        cos_sin: torch.Tensor,
        batch: RaggedBatch,
        scale: float,
    ) -> torch.Tensor:
        """x [num_tokens, hidden] -> [num_tokens, num_heads * head_dim]; writes the pool."""
        qkv = self.qkv(x)
        query = self.kernels.rope_write_kv(qkv, cos_sin, batch.positions, batch.slots, kv_layer)
        return self.kernels.paged_attention(query, kv_layer, batch, scale)

    def feed_forward(
        self, attended: torch.Tensor, residual: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """Projects attention's output into `residual` (in place), then the gated MLP's output."""
        x = self.kernels.add_rms_norm(self.o(attended), residual, self.post_attention_norm, eps)
        return self.down(self.kernels.silu_mul(self.gate_up(x)))
