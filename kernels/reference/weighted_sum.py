"""The sum over the experts of a row, from the branches that they made of it."""

from __future__ import annotations

import torch


def weighted_sum(
    branches: torch.Tensor, places: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """branches [num_branches, hidden], places int64 and weights float32 [num_rows, k]
    -> float32 [num_rows, hidden].

    Best expert first, each product rounded before it is added: a fused multiply-add here and none
    there would make bits depend on a row's place in the batch.
    """
    shape = (len(places), branches.shape[1])
    out = torch.zeros(shape, dtype=torch.float32, device=branches.device)
    for rank in range(places.shape[1]):
        out += branches[places[:, rank]].float().mul_(weights[:, rank, None])
    return out
