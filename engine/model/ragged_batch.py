"""The tensors of one step: sequences side by side, without padding.

    sequences   | decode | decode | decode | prefill chunk ...      | prefill chunk ... |
    tokens      |   1    |   1    |   1    |   n tokens             |   m tokens        |
    query_starts 0        1        2        3                        3+n                 3+n+m

Decodes come first. A chunk may start in the middle of its sequence: earlier tokens are in the pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedBatch:
    """Made by the batch builder from a step plan; read by the decoder and its kernels."""

    token_ids: torch.Tensor  # int64 [num_tokens]
    positions: torch.Tensor  # int64 [num_tokens], in the sequence
    slots: torch.Tensor  # int64 [num_tokens], block_id * block_size + offset: where the KV goes
    query_starts: torch.Tensor  # int32 [num_seqs + 1]
    context_lens: torch.Tensor  # int32 [num_seqs], tokens in the pool once this step has written
    block_tables: torch.Tensor  # int32 [num_seqs, max_blocks], padded with 0
    logit_rows: torch.Tensor  # int64 [num_logits], rows of tokens whose logits are wanted
    num_decodes: int  # the first sequences, one query token each
    max_query_len: int
    max_context_len: int
    adapters: torch.Tensor | None = None  # int32 [num_tokens]: slots; None: no row has one
    is_pooled: bool = False
    """Hidden states are wanted of `logit_rows`, in place of logits."""
    rows_each: int = 0
    """Tokens of every sequence, a few, as many of each and none with a shorter context: a padded
    step with drafts. 0: they may differ."""

    def to(self, device: torch.device) -> RaggedBatch:
        """The same on another device; each tensor is a copy of its own."""
        return replace(
            self,
            token_ids=self.token_ids.to(device),
            positions=self.positions.to(device),
            slots=self.slots.to(device),
            query_starts=self.query_starts.to(device),
            context_lens=self.context_lens.to(device),
            block_tables=self.block_tables.to(device),
            logit_rows=self.logit_rows.to(device),
            adapters=None if self.adapters is None else self.adapters.to(device),
        )
