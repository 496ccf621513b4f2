"""Which experts a row goes to, with the same bits in whatever batch the row is.

torch's sigmoid takes what does not fill a vector by other instructions, so that a row's last bits
would depend on how many rows lie before it. Its softmax goes row by row.
"""

from __future__ import annotations

import ctypes

import torch

from kernels.experts import RoutingRule, ScoreFunction, check_routing
from kernels.reference.route_experts import routed


class NativeRouting:
    """Bound to the library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def route_experts(
        self, logits: torch.Tensor, bias: torch.Tensor | None, rule: RoutingRule
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See kernels/reference/route_experts.py."""
        check_routing(logits, bias, rule)
        if rule.score is ScoreFunction.SOFTMAX:
            return routed(logits.softmax(dim=-1), bias, rule)
        return routed(self._sigmoid(logits.contiguous()), bias, rule)

    def _sigmoid(self, values: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(values)
        self._library.splitserve_sigmoid(values.data_ptr(), values.numel(), out.data_ptr())
        return out
