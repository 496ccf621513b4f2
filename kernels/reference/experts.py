"""Routed experts in plain torch: every expert in turn, for the rows that chose it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from kernels.door import require, require_shape
from kernels.experts import check_experts
from kernels.gated_mul import GateActivation
from kernels.reference.gated_mul import gated_mul
from kernels.weights import Weight, plain


class ReferenceExperts:
    """A `kernels.experts.Experts` on any device."""

    def __init__(
        self, gate_up: Sequence[Weight], down: Sequence[Weight], first_expert: int | None = None
    ) -> None:
        require(len(gate_up) == len(down) > 0, f"{len(gate_up)} gates for {len(down)} downs")
        self._gate_up = [plain(weight) for weight in gate_up]
        self._down = [plain(weight) for weight in down]
        self._first_expert = first_expert or 0
        self._hidden_size, size = self._down[0].shape
        for first, second in zip(self._gate_up, self._down, strict=True):
            require_shape("gate_up", first, (2 * size, self._hidden_size))
            require_shape("down", second, (self._hidden_size, size))

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return sum(weight.nbytes for weight in (*self._gate_up, *self._down))

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Experts."""
        check_experts(x, ids, weights, self._hidden_size)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        held = enumerate(zip(self._gate_up, self._down, strict=True), self._first_expert)
        for expert, (gate_up, down) in held:
            rows, places = (ids == expert).nonzero(as_tuple=True)
            gated = gated_mul(F.linear(x[rows], gate_up), GateActivation.SILU)
            branch = F.linear(gated, down).float()
            out.index_add_(0, rows, branch * weights[rows, places, None])
        return out.to(x.dtype)
