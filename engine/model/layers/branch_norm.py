"""A branch that is normed once more before it is added to the residual (Gemma 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.model.layers.attention import Attention
from engine.model.layers.feed_forward import FeedForward
from engine.model.layers.recorded import recorded_attention, recorded_feed_forward
from engine.model.ragged_batch import RaggedBatch
from kernels.cpu.tape import Rows, Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchNorm:
    """Root-mean-square norm of a branch's output."""

    kernel: Callable[[torch.Tensor, torch.Tensor, float, torch.dtype], torch.Tensor]
    """`KernelSet.rms_norm`."""
    weight: torch.Tensor  # float32 [hidden]
    eps: float

    def __call__(self, branch: torch.Tensor) -> torch.Tensor:
        """[num_rows, hidden] -> the same shape and dtype."""
        return self.kernel(branch.float(), self.weight, self.eps, branch.dtype)

    def record(self, tape: Tape, branch: Rows) -> Rows:
        """See engine/model/layers/recorded.py."""
        return tape.branch_norm(branch, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class NormedAttention:
    """See Attention."""

    inner: Attention
    norm: BranchNorm

    @property
    def num_bytes(self) -> int:
        """See Attention."""
        return self.inner.num_bytes

    def attend(self, x: torch.Tensor, kv_layer: torch.Tensor, batch: RaggedBatch) -> torch.Tensor:
        """See Attention."""
        return self.inner.attend(x, kv_layer, batch)

    def project(self, attended: torch.Tensor) -> torch.Tensor:
        """See Attention."""
        return self.norm(self.inner.project(attended))

    def record_attend(self, tape: Tape, x: Rows, layer: int) -> Rows:
        """See engine/model/layers/recorded.py."""
        return recorded_attention(self.inner).record_attend(tape, x, layer)

    def record_project(self, tape: Tape, attended: Rows) -> Rows:
        """See engine/model/layers/recorded.py."""
        branch = recorded_attention(self.inner).record_project(tape, attended)
        return self.norm.record(tape, branch)


@dataclass(frozen=True, slots=True)
class NormedFeedForward:
    """See FeedForward."""

    inner: FeedForward
    norm: BranchNorm

    @property
    def num_bytes(self) -> int:
        """See FeedForward."""
        return self.inner.num_bytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """See FeedForward."""
        return self.norm(self.inner(x))

    def record(self, tape: Tape, x: Rows) -> Rows:
        """See engine/model/layers/recorded.py."""
        return self.norm.record(tape, recorded_feed_forward(self.inner).record(tape, x))
