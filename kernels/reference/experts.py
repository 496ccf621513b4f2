"""Routed experts in plain torch: every expert in turn, for the rows that chose it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from kernels.door import require_shape
from kernels.experts import Experts, HeldExperts, check_experts, check_matrices
from kernels.gated_mul import GateActivation
from kernels.reference.gated_mul import gated_mul
from kernels.weights import Weight, plain


class ReferenceExperts:
    """A `kernels.experts.Experts` on any device."""

    def __init__(
        self, gate_up: Sequence[Weight], down: Sequence[Weight], held: HeldExperts | None = None
    ) -> None:
        self.held = check_matrices(gate_up, down, held)
        self._gate_up = [plain(weight) for weight in gate_up]
        self._down = [plain(weight) for weight in down]
        self._hidden_size, size = self._down[0].shape
        for first, second in zip(self._gate_up, self._down, strict=True):
            require_shape("gate_up", first, (2 * size, self._hidden_size))
            require_shape("down", second, (self._hidden_size, size))

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return sum(weight.nbytes for weight in (*self._gate_up, *self._down))

    def with_experts(self, held: HeldExperts, gained: Sequence[Experts]) -> ReferenceExperts:
        """See Experts."""
        known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for each in (self, *gained):
            assert isinstance(each, ReferenceExperts)
            known |= each._by_id()
        gate_up, down = zip(*(known[expert] for expert in held.ids), strict=True)
        return ReferenceExperts(gate_up, down, held)

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """See Experts."""
        check_experts(x, ids, weights, self._hidden_size)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert, (gate_up, down) in self._by_id().items():
            rows, places = (ids == expert).nonzero(as_tuple=True)
            gated = gated_mul(F.linear(x[rows], gate_up), GateActivation.SILU)
            branch = F.linear(gated, down).float()
            out.index_add_(0, rows, branch * weights[rows, places, None])
        return out.to(x.dtype)

    def _by_id(self) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        pairs = zip(self._gate_up, self._down, strict=True)
        return dict(zip(self.held.ids, pairs, strict=True))
