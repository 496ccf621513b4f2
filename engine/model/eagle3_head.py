"""An EAGLE-3 head: one layer that guesses the next tokens from what the target's layers say.

    states of a token, of several layers   [rows, target's width] -> fuse -> hidden
    hidden, and the token after it         [norm(embedding) | norm(hidden)] -> one decoder layer
                                           -> logits of the token after that, and the next hidden

Of its own guesses it reads its own hidden state in place of the target's. Kernel by kernel: what it
gives decides what is tried, and no text, so its bits matter to nobody.

Source: Li et al., "EAGLE-3", 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.models.heads.card import HeadsConfig
from engine.memory.kv_pool import KvLayers
from engine.model.head_output import HeadOutput
from engine.model.layers.rope_table import RopeTables
from engine.model.ragged_batch import RaggedBatch
from engine.model.weights.heads_weights import HeadsWeights
from kernels.gated_mul import GateActivation
from kernels.linear import Linear
from kernels.tape.kernel_set import KernelSet


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """float32 [hidden] each."""

    embedding: torch.Tensor
    state: torch.Tensor
    feed_forward: torch.Tensor
    final: torch.Tensor

    @classmethod
    def of(cls, weights: HeadsWeights) -> HeadNorms:
        """Of them these alone, so that the matrices are held packed only."""
        return cls(
            weights.embedding_norm,
            weights.state_norm,
            weights.feed_forward_norm,
            weights.final_norm,
        )


class Eagle3Head:
    """Takes the weights over."""

    def __init__(
        self,
        config: HeadsConfig,
        weights: HeadsWeights,
        kernels: KernelSet,
        embedding: Linear | None = None,
    ) -> None:
        """`embedding`: the target's, for weights without one."""
        layer = config.layer
        self._config, self._kernels = config, kernels
        self._dtype = weights.fuse.dtype
        if weights.embedding is not None:
            embedding = kernels.pack_linear(weights.embedding)
        assert embedding is not None, "a head has an embedding, or its target's"
        self._embedding = embedding
        self._fuse = kernels.pack_linear(weights.fuse)
        self._qkv, self._o = kernels.pack_linear(weights.qkv), kernels.pack_linear(weights.o)
        self._gate_up = kernels.pack_linear(weights.gate_up)
        self._down = kernels.pack_linear(weights.down)
        self._lm_head = kernels.pack_linear(weights.lm_head)
        self._has_own_embedding = weights.embedding is not None
        self._norms, self._token_ids = HeadNorms.of(weights), weights.token_ids
        self._cos_sin = RopeTables.of(layer, None, weights.fuse.device).plain
        self._scale = layer.head_dim**-0.5

    @property
    def num_bytes(self) -> int:
        """Memory of its matrices; the target's embedding is not among them."""
        own = [self._fuse, self._qkv, self._o, self._gate_up, self._down, self._lm_head]
        if self._has_own_embedding:
            own.append(self._embedding)
        return sum(matrix.num_bytes for matrix in own)

    def fused(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [rows, target's width] -> float32 [rows, hidden]."""
        return self._fuse.logits(states.to(self._dtype))

    @torch.inference_mode()
    def forward(self, batch: RaggedBatch, hidden: torch.Tensor, kv: KvLayers) -> HeadOutput | None:
        """Writes the KV of all rows; None where no logits are wanted: keys and values need nothing
        of attention. `hidden` is float32 [num_tokens, hidden], of the token before each of the
        batch's. Block tables and slots are trusted."""
        kernels, eps, norms = self._kernels, self._config.layer.rms_norm_eps, self._norms
        embedded = self._embedding.rows(batch.token_ids).contiguous()
        token = kernels.rms_norm(embedded, norms.embedding, eps, self._dtype)
        state = kernels.rms_norm(hidden.contiguous(), norms.state, eps, self._dtype)
        qkv = self._qkv(torch.cat((token, state), dim=1))
        kv_layer = kv.layer(0)
        query = kernels.rope_write_kv(qkv, self._cos_sin, batch.positions, batch.slots, kv_layer)
        rows = batch.logit_rows
        if not len(rows):
            return None
        attended = kernels.paged_attention(query, kv_layer, batch, self._scale)[rows]
        residual = (state.float() if self._config.norms_before_residual else hidden)[rows]
        return self._said(self._o(attended), residual)

    def _said(self, branch: torch.Tensor, residual: torch.Tensor) -> HeadOutput:
        """From attention's branch on. Changes the residual."""
        kernels, eps, norms = self._kernels, self._config.layer.rms_norm_eps, self._norms
        x = kernels.add_rms_norm(branch, residual, norms.feed_forward, eps)
        activation = GateActivation(self._config.layer.activation.value)
        branch = self._down(kernels.gated_mul(self._gate_up(x), activation))
        x = kernels.add_rms_norm(branch, residual, norms.final, eps)
        return HeadOutput(self._of_all_tokens(self._lm_head.logits(x)), residual)

    def _of_all_tokens(self, logits: torch.Tensor) -> torch.Tensor:
        """What it cannot guess has no chance."""
        if self._token_ids is None:
            return logits
        shape = (len(logits), self._config.layer.vocab_size)
        wide = torch.full(shape, -torch.inf, device=logits.device)
        wide[:, self._token_ids] = logits
        return wide
