"""The sum that all ranks agree on: in float32, in the order of the ranks, rounded once."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def ordered_sum(parts: Iterable[torch.Tensor], out: torch.Tensor) -> None:
    """`parts` of the ranks, in their order, of the shape of `out`, which may be one of them."""
    total: torch.Tensor | None = None
    for part in parts:
        total = part.to(torch.float32, copy=True) if total is None else total.add_(part)
    assert total is not None, "a group has at least one rank"
    out.copy_(total)
