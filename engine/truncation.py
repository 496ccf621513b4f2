"""Top-k, top-p and min-p: from scaled logits to a threshold per row.

All three keep "the likeliest", so each is a lowest logit that stays; the highest of the three wins.
Tokens that tie with the lowest one stay as well. Order: top-k first, then top-p of what it left.
Sources: Fan et al. 2018 (top-k), Holtzman et al. 2019 (top-p), Nguyen et al. 2024 (min-p).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cluster.sampling import SamplingParams

_FIRST_LOOK = 1024
"""Candidates sorted at first: a whole row of 49152 takes 20 times as long as its top 1024."""


def truncate(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """float32 [num_rows, vocab_size] -> the same with dropped tokens at -inf."""
    rows = [i for i, p in enumerate(params) if p.top_k or p.top_p < 1.0]
    floor = _min_p_floor(scaled, params)  # [num_rows, 1]
    if rows:
        chosen = scaled if len(rows) == len(params) else scaled[rows]
        ranked = _ranked_floor(chosen, [params[i] for i in rows])
        floor[rows] = torch.maximum(floor[rows], ranked)
    return torch.where(scaled < floor, -torch.inf, scaled)


def _min_p_floor(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    min_p = scaled.new_tensor([p.min_p for p in params])  # [num_rows]
    return (scaled.amax(dim=-1) + min_p.log())[:, None]  # log(0) is -inf: keeps all


def _ranked_floor(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """The lowest logit that top-k and top-p keep: [num_rows, 1]."""
    vocab_size = scaled.shape[-1]
    num_kept = [min(p.top_k or vocab_size, vocab_size) for p in params]
    needs_mass = any(p.top_p < 1.0 and not p.top_k for p in params)
    width = max((k for k in num_kept if k < vocab_size), default=1)
    width = min(vocab_size, max(width, _FIRST_LOOK if needs_mass else 1))
    while True:
        floor, reached = _floor_of_top(scaled, params, num_kept, width)
        if width == vocab_size or reached:
            return floor
        width = vocab_size


def _floor_of_top(
    scaled: torch.Tensor, params: Sequence[SamplingParams], num_kept: list[int], width: int
) -> tuple[torch.Tensor, bool]:
    """The floor as seen from the `width` likeliest; False: they are too few to tell."""
    top = scaled.topk(width, dim=-1).values  # [num_rows, width], descending
    kept = torch.tensor(num_kept, device=scaled.device)[:, None]  # [num_rows, 1]
    in_top_k = torch.arange(width, device=scaled.device) < kept  # [num_rows, width]
    masked = top.masked_fill(~in_top_k, -torch.inf)
    whole = torch.where(kept[:, 0] < scaled.shape[-1], masked.logsumexp(-1), scaled.logsumexp(-1))
    probs = (masked - whole[:, None]).exp()  # [num_rows, width]
    before = probs.cumsum(-1, dtype=torch.float64) - probs  # mass of the likelier ones
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=scaled.device)
    keep = in_top_k & (before < top_p[:, None])
    keep[:, 0] = True
    last = keep.sum(-1, keepdim=True) - 1  # [num_rows, 1]
    reached = (last[:, 0] + 1 < width) | (kept[:, 0] <= width)
    return top.gather(-1, last), bool(reached.all())
