"""The decoder's forward recorded as one native call, where every part of the model has that form.

    asked once, when the model is loaded:  record_forward(...) -> StepProgram | None
    every step:                            program(batch, pool) -> logits

`layers/recorded.py` says what a part must have. A model with a part that has no native form goes
operation by operation, as `Decoder.forward` writes it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cluster.models.card import DecoderConfig
from engine.model.layers.decoder_layer import DecoderLayer
from engine.model.layers.recorded import recorded_attention, recorded_feed_forward
from kernels.cpu.step_program import StepProgram
from kernels.cpu.tape import NoNativeForm, Rows, Tape
from kernels.dispatch import KernelSet
from kernels.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderParts:
    """What a decoder consists of, in the order of its forward."""

    config: DecoderConfig
    dtype: torch.dtype
    embedding: Linear
    embedding_scale: float
    layers: Sequence[DecoderLayer]
    final_norm: torch.Tensor  # float32 [hidden]
    lm_head: Linear


def record_forward(parts: DecoderParts, kernels: KernelSet) -> StepProgram | None:
    """None: a part, or the kernel set, has no native form."""
    config = parts.config
    if kernels.new_tape is None or config.latent is not None:
        return None
    heads, head_dim = config.num_kv_heads, config.head_dim
    try:
        tape = kernels.new_tape(parts.dtype, num_kv_heads=heads, head_dim=head_dim)
        return _Recording(tape, parts).run()
    except NoNativeForm:
        return None


class _Recording:
    """Follows `Decoder.forward` on symbols."""

    def __init__(self, tape: Tape, parts: DecoderParts) -> None:
        self._tape = tape
        self._parts = parts
        self._eps = parts.config.rms_norm_eps

    def run(self) -> StepProgram:
        tape, layers = self._tape, self._parts.layers
        residual = tape.embed(self._parts.embedding)
        if self._parts.embedding_scale != 1.0:
            tape.scale(residual, self._parts.embedding_scale)
        x = tape.rms_norm(residual, layers[0].input_norm, self._eps)
        for index, layer in enumerate(layers[:-1]):
            attended = self._attend(layer, x, index)
            x = self._feed_forward(layer, attended, residual, layers[index + 1].input_norm)
        attended = self._attend(layers[-1], x, len(layers) - 1)
        attended, residual = tape.keep_wanted(attended, residual)
        x = self._feed_forward(layers[-1], attended, residual, self._parts.final_norm)
        tape.logits(self._parts.lm_head, x)
        return tape.finish()

    def _attend(self, layer: DecoderLayer, x: Rows, index: int) -> Rows:
        return recorded_attention(layer.attention).record_attend(self._tape, x, index)

    def _feed_forward(
        self, layer: DecoderLayer, attended: Rows, residual: Rows, next_norm: torch.Tensor
    ) -> Rows:
        """To the end of the layer, and the norm that opens the next one."""
        branch = recorded_attention(layer.attention).record_project(self._tape, attended)
        norm = layer.post_attention_norm
        x = self._tape.add_rms_norm(branch, residual, norm, self._eps)
        branch = recorded_feed_forward(layer.feed_forward).record(self._tape, x)
        return self._tape.add_rms_norm(branch, residual, next_norm, self._eps)
