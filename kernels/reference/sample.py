"""One token per row of logits, by given random numbers: temperature, top-k, top-p, min-p.

    weight = exp((logit - maximum) / temperature), rounded down to a multiple of 2**-44
    top-k   keeps logits not below the k-th largest
    top-p   of what top-k left, the smallest set of the likeliest with a share of `top_p`
    min-p   of that, weights of at least `min_p`
    draw    the first token, in the order of ids, whose running sum is over number * total

Ties with the last one kept stay. Sums are integers: exact, and the same in any order.
Sources: Fan et al. 2018 (top-k), Holtzman et al. 2019 (top-p), Nguyen et al. 2024 (min-p).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.door import require, require_dtype, require_same_device, require_shape

WEIGHT_BITS = 44
"""A row of less than 2**19 tokens then has a total below 2**63."""
UNIT = float(1 << WEIGHT_BITS)
"""The mass of the likeliest token."""
MAX_VOCAB_SIZE = (1 << 19) - 1
COLDEST = 1e-6
"""Lowest temperature that float32 divides by safely; below it only the likeliest is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How each row is sampled; all [num_rows], on the device of the logits."""

    temperatures: torch.Tensor  # float32; 0: the likeliest token
    top_k: torch.Tensor  # int32; 0: no limit
    top_p: torch.Tensor  # float64 in (0, 1]; 1: no limit
    min_p: torch.Tensor  # float32 in [0, 1]
    numbers: torch.Tensor  # float64 in [0, 1)
    has_limits: bool = True
    """False promises that no row has top-k or top-p, which saves passes over the logits."""

    def of(self, rows: list[int]) -> Draws:
        """Those of some rows."""
        return Draws(
            temperatures=self.temperatures[rows],
            top_k=self.top_k[rows],
            top_p=self.top_p[rows],
            min_p=self.min_p[rows],
            numbers=self.numbers[rows],
            has_limits=self.has_limits,
        )


def check_sample(logits: torch.Tensor, draws: Draws) -> None:
    """The door of every sample."""
    require(logits.dim() == 2, f"logits have {logits.dim()} dimensions; needed: 2")
    require_dtype("logits", logits, torch.float32)
    require(
        0 < logits.shape[1] <= MAX_VOCAB_SIZE,
        f"{logits.shape[1]} tokens; needed: 1 to {MAX_VOCAB_SIZE}",
    )
    require_dtype("temperatures", draws.temperatures, torch.float32)
    require_dtype("top_k", draws.top_k, torch.int32)
    require_dtype("top_p", draws.top_p, torch.float64)
    require_dtype("min_p", draws.min_p, torch.float32)
    require_dtype("numbers", draws.numbers, torch.float64)
    columns = (draws.temperatures, draws.top_k, draws.top_p, draws.min_p, draws.numbers)
    for tensor in columns:
        require_shape("a column of draws", tensor, (logits.shape[0],))
    require_same_device(logits, *columns)


def sample(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """logits float32 [num_rows, vocab_size] -> (maxima float32 [num_rows], ids int64 [num_rows]).

    Where a maximum is not finite (NaN counts as infinity) the model failed and the id means
    nothing, though it is one of the vocabulary.
    """
    check_sample(logits, draws)
    shown = logits.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    maxima, ids = shown.max(dim=-1)
    for row in range(logits.shape[0]):
        if maxima[row].isfinite() and draws.temperatures[row] > 0:
            ids[row] = _draw(logits[row], maxima[row], draws, row)
    return maxima, ids


def _draw(logits: torch.Tensor, maximum: torch.Tensor, draws: Draws, row: int) -> torch.Tensor:
    weights = ((logits - maximum) / draws.temperatures[row].clamp(min=COLDEST)).exp()
    masses = (weights * UNIT).long()
    kept = _in_top_k(logits, int(draws.top_k[row]))
    if draws.top_p[row] < 1.0:
        kept &= _in_top_p(logits, masses.where(kept, 0), draws.top_p[row])
    masses = masses.where(kept & (weights >= draws.min_p[row]), 0)
    sums = masses.cumsum(dim=0)
    total = sums[-1:]
    target = (draws.numbers[row] * total.double()).long().minimum(total - 1)
    return torch.searchsorted(sums, target, right=True)[0]


def _in_top_k(logits: torch.Tensor, top_k: int) -> torch.Tensor:
    if not 0 < top_k < logits.shape[0]:
        return torch.ones_like(logits, dtype=torch.bool)
    return logits >= logits.topk(top_k).values[-1]


def _in_top_p(logits: torch.Tensor, masses: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Tokens for which the likelier ones have not yet the share of `masses`, int64."""
    order = logits.argsort(descending=True)
    ranked = masses[order]
    before = ranked.cumsum(dim=0) - ranked
    target = (top_p * ranked.sum().double()).ceil().long().clamp(min=1)
    last = order[before < target][-1]
    return logits >= logits[last]
