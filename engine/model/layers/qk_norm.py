"""The norm of each head of Q and K, with its weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.tape.rows import QkvHeads, Rows
from kernels.tape.tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class QkNorm:
    """Norms them in place, before they are rotated."""

    query_weight: torch.Tensor  # float32 [head_dim]
    key_weight: torch.Tensor  # float32 [head_dim]
    eps: float

    def record(self, tape: Tape, qkv: Rows, heads: QkvHeads) -> None:
        """See kernels/reference/head_norm.py."""
        tape.head_norm(qkv, heads, (self.query_weight, self.key_weight), self.eps)
