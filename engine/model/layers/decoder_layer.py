"""One layer of a decoder: attention and feed-forward between norms.

The norm that opens a layer runs at the end of the one before, fused with the residual addition.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.model.layers.attention import Attention
from engine.model.layers.feed_forward import FeedForward


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """Norm weights are float32 [hidden]."""

    input_norm: torch.Tensor
    attention: Attention
    feed_forward_norm: torch.Tensor
    """Of the residual, before the feed-forward."""
    feed_forward: FeedForward

    @property
    def num_bytes(self) -> int:
        """Memory of the matrices."""
        return self.attention.num_bytes + self.feed_forward.num_bytes
