"""Routed experts of ranks that have different rows: numbers, then rows, there and back.

    own rows, their ids  --all to all-->  rows of all ranks that chose an expert held here
    weighted sum         <--all to all--  one branch for each pair of such a row and an expert

A row goes to a rank once, however many of its experts are there. Each branch comes back by itself
and is added up where its row is at home, best expert first, as a single rank does it: the bits do
not depend on which rank has an expert, but where several share its columns. Weights stay at home.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.placed_experts import PlacedExperts
from kernels.reference.weighted_sum import weighted_sum
from kernels.tape.collective import ExpertCollective, ReceivedRows


def exchange_experts(
    placed: PlacedExperts,
    collective: ExpertCollective,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """As Experts, of this rank's own rows; all ranks call it at once, each with its own."""
    groups = placed.groups
    chosen = groups.of_experts[ids]  # [num_rows, k]
    masks = [chosen == group for group in range(collective.world_size // groups.sharers)]
    received = _send(x, ids, [mask for mask in masks for _ in range(groups.sharers)], collective)
    back = collective.all_to_all(*_branches(placed, received, x))
    return _summed(back, masks, groups.sharers, weights).to(x.dtype)


def _send(
    x: torch.Tensor,
    ids: torch.Tensor,
    masks: Sequence[torch.Tensor],
    collective: ExpertCollective,
) -> ReceivedRows:
    """To each rank the rows of its mask, each with its ids behind it, as bytes."""
    rows = [mask.any(1).nonzero()[:, 0] for mask in masks]
    sent = torch.cat((x.contiguous().view(torch.uint8), ids.contiguous().view(torch.uint8)), dim=1)
    return collective.all_to_all(sent[torch.cat(rows)], [len(each) for each in rows])


def _branches(
    placed: PlacedExperts, received: ReceivedRows, x: torch.Tensor
) -> tuple[torch.Tensor, list[int]]:
    """One per pair of a row and an expert of this rank, in the order of the rows, and how many
    there are for each rank. `x` has the width and the dtype."""
    row_bytes = x.shape[1] * x.element_size()
    rows = received.rows[:, :row_bytes].contiguous().view(x.dtype)
    ids = received.rows[:, row_bytes:].contiguous().view(torch.int64)
    held = placed.groups.of_experts[ids] == placed.groups.own
    of_pair, places = held.nonzero(as_tuple=True)
    pair_ids = ids[of_pair, places][:, None]
    unweighted = torch.ones(pair_ids.shape, dtype=torch.float32, device=x.device)
    numbers = [int(part.sum()) for part in torch.split(held.sum(1), received.num_rows)]
    return placed(rows[of_pair], pair_ids, unweighted), numbers


def _summed(
    back: ReceivedRows, masks: Sequence[torch.Tensor], sharers: int, weights: torch.Tensor
) -> torch.Tensor:
    parts = torch.split(back.rows, back.num_rows)
    branches = [_added(parts[first : first + sharers]) for first in range(0, len(parts), sharers)]
    pairs = torch.cat([mask.flatten().nonzero()[:, 0] for mask in masks])  # of each branch
    places = torch.empty_like(pairs)
    places[pairs] = torch.arange(len(pairs), device=pairs.device)
    return weighted_sum(torch.cat(branches), places.view(weights.shape), weights)


def _added(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """What the ranks that share an expert made of its columns, in their order."""
    if len(parts) == 1:
        return parts[0]
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part.float()
    return total.to(parts[0].dtype)
