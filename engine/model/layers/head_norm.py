"""The norm of each head of Q and K, with its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels.cpu.tape import Rows, Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorm:
    """Takes qkv [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]; norms it in place."""

    kernel: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float, int, int], None]
    query_weight: torch.Tensor  # float32 [head_dim]
    key_weight: torch.Tensor  # float32 [head_dim]
    eps: float
    num_heads: int
    num_kv_heads: int

    def __call__(self, qkv: torch.Tensor) -> None:
        """See kernels/reference/head_norm.py."""
        self.kernel(
            qkv, self.query_weight, self.key_weight, self.eps, self.num_heads, self.num_kv_heads
        )

    def record(self, tape: Tape, qkv: Rows) -> None:
        """See engine/model/layers/recorded.py."""
        tape.head_norm(qkv, self.query_weight, self.key_weight, self.eps)
