"""One configurable decoder over paged KV; docs/models.md lists the families it runs.

    token_ids -> embedding -> [ norm, QKV, rotate + write KV, attend, O, norm, gate-up, down ] x L
              -> rows whose logits are wanted -> norm -> LM head -> float32 logits

The residual stream is float32; matrices and the pool are in the decoder's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from cluster.models.card import ModelCard
from engine.contract.weight_format import AUTO, resolve_weights
from engine.memory.kv_pool import KvPool
from engine.model.layers.build import LayerBuilder
from engine.model.layers.decoder_layer import DecoderLayer
from engine.model.native_forward import DecoderParts, record_forward
from engine.model.ragged_batch import RaggedBatch
from engine.model.rope_table import RopeTables
from engine.model.weights.decoder_weights import DecoderWeights
from kernels.dispatch import KernelSet, kernels_for

Progress = Callable[[str, float], None]


def _silent(phase: str, fraction: float) -> None:
    """The progress of a load that nobody watches."""


class Decoder:
    """One replica's model. Not thread-safe: one step at a time."""

    def __init__(
        self, weights: DecoderWeights, kernels: KernelSet, *, progress: Progress = _silent
    ) -> None:
        self.config = weights.config
        self.dtype, self.device = weights.dtype, weights.device
        self._kernels = kernels
        self._embedding = kernels.pack_linear(weights.embedding())
        self._embedding_scale = torch.tensor(self.config.embedding_scale).to(self.dtype).item()
        rope = RopeTables.of(self.config, weights.rope_divisors(), self.device)
        builder = LayerBuilder(config=self.config, kernels=kernels, rope=rope)
        self._layers: list[DecoderLayer] = []
        for index in range(self.config.num_layers):
            self._layers.append(builder.layer(index, weights.layer(index)))
            progress("load weights", (index + 1) / self.config.num_layers)
        self._final_norm = weights.final_norm()
        head = weights.lm_head()
        self._lm_head = self._embedding if head is None else kernels.pack_linear(head)
        self._program = record_forward(self._parts(), kernels)

    @classmethod
    def load(
        cls,
        card: ModelCard,
        dtype: torch.dtype,
        device: str | torch.device,
        progress: Progress = _silent,
        *,
        weights: str = AUTO,
        max_context_tokens: int | None = None,
    ) -> Decoder:
        """Reads the card's checkpoint. Raises BadCheckpoint or UnsupportedModel.

        `weights` as an operator gives it, or resolved; ConfigError for what this device lacks.
        Positions from `max_context_tokens` on are never used: their rotations are not kept.
        """
        device = torch.device(device)
        if max_context_tokens is not None:
            config = replace(card.config, max_context_tokens=max_context_tokens)
            card = replace(card, config=config)
        form = resolve_weights(card, weights, str(dtype).removeprefix("torch."), device.type)
        progress("open checkpoint", 0.0)
        reader = DecoderWeights(card, dtype, device, form)
        progress("prepare kernels", 0.0)  # compiles, the first time on a machine
        kernels = kernels_for(device)
        with torch.inference_mode():
            return cls(reader, kernels, progress=progress)

    @property
    def is_one_call(self) -> bool:
        """True when a step is a single native call."""
        return self._program is not None

    @property
    def kernel_set(self) -> str:
        """Name of the kernels in use, for the log."""
        return self._kernels.name

    @property
    def num_bytes(self) -> int:
        """Memory of the weights."""
        ends = {self._embedding, self._lm_head}
        return sum(m.num_bytes for m in ends) + sum(layer.num_bytes for layer in self._layers)

    def forward(self, batch: RaggedBatch, kv: KvPool) -> torch.Tensor:
        """Writes the batch's KV into the pool; returns logits, float32 [num_logits, vocab_size].

        Block tables and slots are trusted; a wrong one corrupts other sequences.
        """
        if self._program is not None:
            return self._program(batch, kv.tensor)
        return self._forward_by_operations(batch, kv)

    def _parts(self) -> DecoderParts:
        return DecoderParts(
            config=self.config,
            dtype=self.dtype,
            embedding=self._embedding,
            embedding_scale=self._embedding_scale,
            layers=self._layers,
            final_norm=self._final_norm,
            lm_head=self._lm_head,
        )

    @torch.inference_mode()
    def _forward_by_operations(self, batch: RaggedBatch, kv: KvPool) -> torch.Tensor:
        eps = self.config.rms_norm_eps
        residual = self._embedding.rows(batch.token_ids)  # float32 [num_tokens, hidden]
        if self._embedding_scale != 1.0:
            residual *= self._embedding_scale  # rounded to the dtype, as in training
        x = self._kernels.rms_norm(residual, self._layers[0].input_norm, eps, self.dtype)
        for index, layer in enumerate(self._layers[:-1]):
            attended = layer.attention.attend(x, kv.layer(index), batch)
            x = self._feed_forward(layer, attended, residual)
            next_norm = self._layers[index + 1].input_norm
            x = self._kernels.add_rms_norm(x, residual, next_norm, eps)
        return self._finish(x, residual, batch, kv)

    def _feed_forward(
        self, layer: DecoderLayer, attended: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        """Projects attention's output into `residual` (in place); then the feed-forward."""
        branch, eps = layer.attention.project(attended), self.config.rms_norm_eps
        x = self._kernels.add_rms_norm(branch, residual, layer.post_attention_norm, eps)
        return layer.feed_forward(x)

    def _finish(
        self, x: torch.Tensor, residual: torch.Tensor, batch: RaggedBatch, kv: KvPool
    ) -> torch.Tensor:
        """The last layer, whose feed-forward only rows with wanted logits need, and the head."""
        layer, eps = self._layers[-1], self.config.rms_norm_eps
        attended = layer.attention.attend(x, kv.layer(len(self._layers) - 1), batch)
        attended, residual = attended[batch.logit_rows], residual[batch.logit_rows]
        x = self._feed_forward(layer, attended, residual)
        x = self._kernels.add_rms_norm(x, residual, self._final_norm, eps)
        return self._lm_head.logits(x)
