"""Drawing tokens: the inverse of the cumulative distribution at a counter-based random number.

Tokens are in the order of their ids, sums are float64. A row of the whole vocabulary is searched in
two levels, block of 128 first: the sum of a block is a tenth of the price of a running sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.sampling.logits import SamplingRow
from engine.sampling.random_numbers import uniforms
from engine.sampling.row_weights import BLOCK, RowWeights
from engine.sampling.truncation import candidates, cut

_COLDEST = 1e-6
"""Lowest temperature that float32 divides by safely; below it only the likeliest is left."""


class Drawer:
    """Keeps nothing between calls but memory to work in."""

    def __init__(self) -> None:
        self._weights = RowWeights()

    def draw(self, allowed: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
        """float32 [num_rows, vocab_size], each with a finite maximum -> int64 [num_rows]."""
        params = [row.params for row in rows]
        temperatures = allowed.new_tensor([max(p.temperature, _COLDEST) for p in params])[:, None]
        numbers = _numbers(rows, allowed.device)
        drawn = torch.empty(len(rows), dtype=torch.int64, device=allowed.device)
        is_ranked = [bool(p.top_k) or p.top_p < 1.0 for p in params]
        wide = [i for i, ranked in enumerate(is_ranked) if not ranked]
        if any(is_ranked):
            ranked = [i for i, ranked in enumerate(is_ranked) if ranked]
            whole = self._whole_mass(allowed, temperatures, rows)
            few = candidates(allowed, temperatures, whole, params=params, rows=ranked)
            picked = _pick(few.weights, numbers[few.rows])
            drawn[few.rows] = few.token_ids.gather(-1, picked)[:, 0]
            wide += sorted(set(ranked) - set(few.rows))
        for group, weights in self._weights.groups(allowed, wide, temperatures):
            for row, place in zip(weights, group, strict=True):
                if is_ranked[place] or params[place].min_p:
                    cut(row[: allowed.shape[1]], params[place])
            drawn[group] = _pick_in_blocks(weights, numbers[group])
        return drawn

    def _whole_mass(
        self, allowed: torch.Tensor, temperatures: torch.Tensor, rows: Sequence[SamplingRow]
    ) -> torch.Tensor:
        """Sum of the weights of rows with top-p alone: float64 [num_rows, 1], 0 for the others."""
        whole = torch.zeros(len(rows), 1, dtype=torch.float64, device=allowed.device)
        asked = [i for i, r in enumerate(rows) if r.params.top_p < 1.0 and not r.params.top_k]
        for group, weights in self._weights.groups(allowed, asked, temperatures):
            sums = weights.view(len(group), -1, BLOCK).sum(dim=-1).double()
            whole[group] = sums.sum(dim=-1, keepdim=True)
        return whole


def _numbers(rows: Sequence[SamplingRow], device: torch.device) -> torch.Tensor:
    """float64 [num_rows, 1] in [0, 1)."""
    numbers = uniforms(
        [row.params.seed for row in rows],
        [row.choice for row in rows],
        [len(row.token_ids) for row in rows],
    )
    return torch.from_numpy(numbers).to(device)[:, None]


def _pick_in_blocks(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """float32 [num_rows, multiple of 128], float64 [num_rows, 1] -> int64 [num_rows]."""
    blocks = weights.view(len(weights), -1, BLOCK)
    sums = blocks.sum(dim=-1).double()  # [num_rows, num_blocks]
    block = _pick(sums, numbers)  # [num_rows, 1]
    before = (sums.cumsum(dim=-1) - sums).gather(-1, block)
    rest = (numbers * sums.sum(dim=-1, keepdim=True) - before) / sums.gather(-1, block)
    rows = torch.arange(len(weights), device=weights.device)
    inside = _pick(blocks[rows, block[:, 0]].double(), rest.clamp(min=0.0))
    return (block * BLOCK + inside)[:, 0]


def _pick(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Index of the first running sum over `numbers` times the total: [num_rows, 1].

    Never one of weight 0, whatever the rounding.
    """
    sums = weights.cumsum(dim=-1)
    total = sums[:, -1:]
    last = total.nextafter(torch.zeros_like(total))
    return torch.searchsorted(sums, (numbers * total).minimum(last), right=True)
