"""Routed experts of ranks that have different rows: numbers, then rows, there and back.

    numbers of both ways --gather------>  all ranks know what each has for each, there and back
    own rows, their ids  --all to all-->  rows of all ranks that chose an expert held here
    weighted sum         <--all to all--  one branch for each pair of such a row and an expert

A row goes to a rank once, however many of its experts are there. Each branch comes back by itself
and is added up where its row is at home, best expert first, as a single rank does it: the bits do
not depend on which rank has an expert, but where several share its columns. Weights stay at home.

The host waits for a device once, for the numbers: who sends a row knows what comes back for it, and
a tensor whose length is known asks the device for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from kernels.placed_experts import ExpertGroups, PlacedExperts
from kernels.reference.weighted_sum import weighted_sum
from kernels.tape.collective import ExpertCollective, ReceivedRows


class _Numbers(NamedTuple):
    """int64 [world_size, world_size] on the host, both: what each rank (first index) has for each.

    The same at every rank.
    """

    rows: torch.Tensor
    branches: torch.Tensor


def exchange_experts(
    placed: PlacedExperts,
    collective: ExpertCollective,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """As Experts, of this rank's own rows; all ranks call it at once, each with its own."""
    groups, rank = placed.groups, collective.rank
    chosen = groups.of_experts[ids]  # [num_rows, k]
    wanted = _wanted(chosen, groups, collective.world_size)
    numbers = _gathered(wanted, collective)
    received = _send(x, ids, wanted.any(2), numbers.rows, collective)
    num_branches = numbers.branches[rank].tolist()
    branches = _branches(placed, received, x, sum(num_branches))
    back = collective.all_to_all(branches, num_branches, numbers.branches)
    return _summed(back, chosen, groups.sharers, weights).to(x.dtype)


def _wanted(chosen: torch.Tensor, groups: ExpertGroups, world_size: int) -> torch.Tensor:
    """bool [world_size, num_rows, k]: the pairs of a row and an expert that each rank has."""
    every = torch.arange(world_size, device=chosen.device) // groups.sharers
    return chosen == every[:, None, None]


def _gathered(wanted: torch.Tensor, collective: ExpertCollective) -> _Numbers:
    """Those of all ranks, each of which has said what it sends and what it wants back."""
    ranks = collective.world_size
    own = torch.cat((wanted.any(2).sum(1), wanted.sum((1, 2))))[None]
    every = collective.all_gather(own)
    collective.wait_until_landed()
    numbers = every.view(ranks, 2, ranks).cpu()
    return _Numbers(numbers[:, 0], numbers[:, 1].t())


def _send(
    x: torch.Tensor,
    ids: torch.Tensor,
    masks: torch.Tensor,
    numbers: torch.Tensor,
    collective: ExpertCollective,
) -> ReceivedRows:
    """To each rank the rows of its mask [world_size, num_rows], each with its ids behind it, as
    bytes."""
    num_rows = numbers[collective.rank].tolist()
    _, rows = _places(masks, sum(num_rows))
    sent = torch.cat((x.contiguous().view(torch.uint8), ids.contiguous().view(torch.uint8)), dim=1)
    return collective.all_to_all(sent[rows], num_rows, numbers)


def _branches(
    placed: PlacedExperts, received: ReceivedRows, x: torch.Tensor, num_branches: int
) -> torch.Tensor:
    """One per pair of a row and an expert of this rank, in the order of the rows. `x` has the width
    and the dtype."""
    row_bytes = x.shape[1] * x.element_size()
    rows = received.rows[:, :row_bytes].contiguous().view(x.dtype)
    ids = received.rows[:, row_bytes:].contiguous().view(torch.int64)
    held = placed.groups.of_experts[ids] == placed.groups.own
    of_pair, places = _places(held, num_branches)
    pair_ids = ids[of_pair, places][:, None]
    unweighted = torch.ones(pair_ids.shape, dtype=torch.float32, device=x.device)
    return placed(rows[of_pair], pair_ids, unweighted)


def _places(mask: torch.Tensor, size: int) -> torch.Tensor:
    """int64 [2, size]: where a mask of so many is true. By places that lie side by side rows
    are taken faster: of a layer of 256 rows a fifth."""
    return mask.nonzero_static(size=size).t().contiguous()


def _summed(
    back: ReceivedRows, chosen: torch.Tensor, sharers: int, weights: torch.Tensor
) -> torch.Tensor:
    """The branches come by group, and of each in the order of the pairs `chosen` [num_rows, k]."""
    parts = torch.split(back.rows, back.num_rows)
    branches = [_added(parts[first : first + sharers]) for first in range(0, len(parts), sharers)]
    pairs = chosen.flatten().argsort(stable=True)  # of each branch
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
