"""The interface of a layer's attention, its projections included."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.model.ragged_batch import RaggedBatch


class Attention(Protocol):
    """One layer's. Built from the layer's weights, which it takes over."""

    @property
    def num_bytes(self) -> int:
        """Memory of the matrices."""

    def attend(self, x: torch.Tensor, kv_layer: torch.Tensor, batch: RaggedBatch) -> torch.Tensor:
        """x [num_tokens, hidden], normed -> [num_tokens, width]; writes the batch's KV."""

    def project(self, attended: torch.Tensor) -> torch.Tensor:
        """[num_rows, width] -> [num_rows, hidden]; the last layer asks for some rows only."""
