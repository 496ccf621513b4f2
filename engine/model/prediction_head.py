"""A model's own layer that predicts further tokens (DeepSeek-V3, 2.2), as a head over its states.

    the state behind the model's last norm, and the token after it
        [norm(embedding) | norm(state)] -> join -> one layer of the model -> logits, next state

Kernel by kernel: what it gives decides what is tried, and no text. Of guesses it reads its own
state in place of the model's. Of a text's first pair the token counts as zeros, as in vLLM's
`deepseek_mtp.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from engine.memory.kv_pool import KvLayers
from engine.model.head_output import HeadOutput
from engine.model.layers.build import LayerBuilder
from engine.model.layers.decoder_layer import DecoderLayer
from engine.model.layers.rope_table import RopeTables
from engine.model.ragged_batch import RaggedBatch
from engine.model.weights.prediction_weights import PredictionWeights
from kernels.linear import Linear
from kernels.tape.kernel_set import KernelSet
from kernels.tape.play import KernelPlayer
from kernels.tape.rows import Rows
from kernels.tape.tape import Tape


@dataclass(frozen=True, slots=True)
class Ends:
    """Its own, or the model's."""

    embedding: Linear
    lm_head: Linear


class PredictionHead:
    """Takes the weights over. Steps are of all its rows: it is not split among ranks."""

    def __init__(
        self, config: DecoderConfig, weights: PredictionWeights, kernels: KernelSet, ends: Ends
    ) -> None:
        """`config`: see `with_prediction_layer`."""
        self._config, self._kernels, self._ends = config, kernels, ends
        self._dtype = weights.join.dtype
        self._token_norm, self._state_norm = weights.token_norm, weights.state_norm
        self._join = kernels.pack_linear(weights.join)
        builder = LayerBuilder(
            split=ModelSplit(config=config),
            kernels=kernels,
            rope=RopeTables.of(config, None, weights.join.device),
        )
        self._layer = builder.layer(config.num_layers - 1, weights.layer)
        tape = Tape(self._dtype)
        self._given = tape.rows("residual", config.hidden_size, torch.float32)
        recording = tape.finish(self._record(tape, self._layer, weights.final_norm))
        self._player = KernelPlayer(recording, kernels)

    @property
    def num_bytes(self) -> int:
        """Memory of its matrices; both ends are counted as the model's."""
        return self._layer.num_bytes + self._join.num_bytes

    def fused(self, states: torch.Tensor) -> torch.Tensor:
        """One state is read of each token: as it is."""
        return states

    @torch.inference_mode()
    def forward(self, batch: RaggedBatch, hidden: torch.Tensor, kv: KvLayers) -> HeadOutput | None:
        """See Eagle3Head."""
        eps, kernels = self._config.rms_norm_eps, self._kernels
        embedded = self._ends.embedding.rows(batch.token_ids)  # [num_tokens, hidden_size]
        embedded = embedded.masked_fill((batch.positions == 0)[:, None], 0.0).contiguous()
        token = kernels.rms_norm(embedded, self._token_norm, eps, self._dtype)
        state = kernels.rms_norm(hidden.contiguous(), self._state_norm, eps, self._dtype)
        joined = self._join.logits(torch.cat((token, state), dim=1))
        logits = self._player.play(batch, kv.tensor, {self._given.place: joined})
        if not len(batch.logit_rows):
            return None
        [after] = self._player.left()
        return HeadOutput(logits, after)

    def _record(self, tape: Tape, layer: DecoderLayer, final_norm: torch.Tensor) -> Rows:
        """From the joined rows, which are given, to logits."""
        eps, residual = self._config.rms_norm_eps, self._given
        x = tape.rms_norm(residual, layer.input_norm, eps)
        attended = layer.attention.attend(tape, x, 0)
        attended, residual = tape.keep_wanted(attended, residual)
        branch = layer.attention.project(tape, attended)
        x = tape.add_rms_norm(branch, residual, layer.feed_forward_norm, eps)
        branch = layer.feed_forward.record(tape, x)
        x = tape.add_rms_norm(branch, residual, final_norm, eps)
        tape.leave(residual)
        return tape.logits(self._ends.lm_head, x)
