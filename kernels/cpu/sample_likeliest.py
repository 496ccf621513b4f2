"""What top-k and top-p keep of rows of which the 128 likeliest tokens tell it.

Both keep the likeliest; `kernels/reference/sample.py` says which.
"""

from __future__ import annotations

import torch

from kernels.reference.sample import COLDEST, UNIT, Draws

LOOK = 128
"""Candidates looked at. 16 rows of 49152, one thread: 1.4 ms for these, 13 ms for 1024."""


def floors_by_likeliest(
    logits: torch.Tensor, draws: Draws, totals: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """-> (floors float32 [num_rows], is_told bool [num_rows]): the lowest logits that are kept,
    -infinity for no limit; floors of rows that are not told mean nothing.

    Every row has a finite maximum; `totals`, int64 [num_rows], is the mass of those without top-k.
    """
    top = logits.topk(min(LOOK, logits.shape[1]), dim=-1).values  # [num_rows, width], descending
    floor, is_told = _floor(top, draws, totals[:, None])
    if logits.shape[1] <= LOOK:
        is_told.fill_(True)
    else:
        is_told &= top[:, -1:] < floor
    return floor[:, 0], is_told[:, 0]


def _floor(
    values: torch.Tensor, draws: Draws, totals: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The lowest logit that top-k and top-p keep, -infinity for no limit; and whether it is that
    of the whole row where it is above the last of these candidates: both [num_rows, 1]."""
    width = values.shape[-1]
    top_k, top_p = draws.top_k[:, None].long(), draws.top_p[:, None]
    is_seen = (top_k > 0) & (top_k <= width)
    last = values.gather(-1, (top_k - 1).clamp(min=0, max=width - 1))
    floor = torch.where(is_seen, last, -torch.inf)
    if bool((top_p == 1.0).all()):
        return floor, torch.ones_like(is_seen)
    depths = (values - values[:, :1]) / draws.temperatures[:, None].clamp(min=COLDEST)
    in_top_k = (depths.exp() * UNIT).long().masked_fill_(values < floor, 0)
    total = torch.where(top_k > 0, in_top_k.sum(dim=-1, keepdim=True), totals)
    wanted = (top_p * total.double()).ceil().long().clamp(min=1)
    count = (in_top_k.cumsum(dim=-1) - in_top_k < wanted).sum(dim=-1, keepdim=True)
    nucleus = torch.where(top_p < 1.0, values.gather(-1, count - 1), -torch.inf)
    is_right = (top_p == 1.0) | (top_k == 0) | (values[:, -1:] < floor)
    return torch.maximum(floor, nucleus), is_right
