"""A branch that is normed once more before it is added to the residual (Gemma 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.model.layers.attention import Attention
from engine.model.layers.feed_forward import FeedForward
from kernels.tape.rows import Rows
from kernels.tape.tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class PostNorm:
    """Root-mean-square norm of a branch's output."""

    weight: torch.Tensor  # float32 [hidden]
    eps: float

    def record(self, tape: Tape, branch: Rows) -> Rows:
        """Rows of the same shape and dtype."""
        return tape.branch_norm(branch, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class NormedAttention:
    """See Attention."""

    inner: Attention
    norm: PostNorm

    @property
    def num_bytes(self) -> int:
        """See Attention."""
        return self.inner.num_bytes

    def attend(self, tape: Tape, x: Rows, layer: int) -> Rows:
        """See Attention."""
        return self.inner.attend(tape, x, layer)

    def project(self, tape: Tape, attended: Rows) -> Rows:
        """See Attention."""
        return self.norm.record(tape, self.inner.project(tape, attended))


@dataclass(frozen=True, slots=True)
class NormedFeedForward:
    """See FeedForward."""

    inner: FeedForward
    norm: PostNorm

    @property
    def num_bytes(self) -> int:
        """See FeedForward."""
        return self.inner.num_bytes

    def record(self, tape: Tape, x: Rows) -> Rows:
        """See FeedForward."""
        return self.norm.record(tape, self.inner.record(tape, x))
