"""What replayed steps leave: on the device, always at the same addresses, valid until the next one.

Copied there by the captured work itself: kept where the decoder leaves it, that of every size would
stay in memory, and another graph's work would write over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.memory.kv_pool import KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch


@dataclass(frozen=True, slots=True)
class LeftRows:
    """Of the rows whose logits are wanted, in their order."""

    logits: torch.Tensor
    """float32 [most rows of a step, vocab_size]"""
    states: torch.Tensor
    """float32 [most rows of a step, width]: what a head reads of them. Width 0: there is none."""

    def take(self, decoder: Decoder, batch: RaggedBatch, pool: KvPool) -> None:
        """A whole step, part of the captured work. All its rows but padding want logits."""
        logits = decoder.forward(batch, pool)
        self.logits[: len(logits)].copy_(logits)
        if self.states.shape[1]:
            states, rows = decoder.states(), batch.logit_rows  # [num_tokens, width], [num_logits]
            torch.index_select(states, 0, rows, out=self.states[: len(rows)])
