"""One token per row of logits, by given keys of noise: temperature, top-k, top-p, min-p.

    weight = exp((logit - maximum) / temperature), rounded down to a multiple of 2**-44
    top-k   keeps logits not below the k-th largest
    top-p   of what top-k left, the smallest set of the likeliest with a share of `top_p`
    min-p   of that, logits not too far below the maximum
    draw    of that, the highest (logit - maximum) / temperature + noise (token_noise.py); the
            first of equals

Ties with the last one kept stay. Sums are integers: exact, and the same in any order.
Sources: Fan et al. 2018 (top-k), Holtzman et al. 2019 (top-p), Nguyen et al. 2024 (min-p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernels.door import require, require_dtype, require_same_device, require_shape
from kernels.reference.token_noise import gumbel_noise

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
    min_gaps: torch.Tensor  # float32, 0 or less: see `min_gap`
    keys: torch.Tensor  # int64: of the noise
    has_limits: bool = True
    """False promises that no row has top-k or top-p, which saves passes over the logits."""

    def of(self, rows: list[int]) -> Draws:
        """Those of some rows."""
        return Draws(
            temperatures=self.temperatures[rows],
            top_k=self.top_k[rows],
            top_p=self.top_p[rows],
            min_gaps=self.min_gaps[rows],
            keys=self.keys[rows],
            has_limits=self.has_limits,
        )


def min_gap(min_p: float, temperature: float) -> float:
    """Logit minus maximum of a token with a share `min_p` of the likeliest's probability."""
    return max(temperature, COLDEST) * math.log(min_p) if min_p > 0.0 else -math.inf


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
    require_dtype("min_gaps", draws.min_gaps, torch.float32)
    require_dtype("keys", draws.keys, torch.int64)
    columns = (draws.temperatures, draws.top_k, draws.top_p, draws.min_gaps, draws.keys)
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
    gaps = logits - maximum
    depths = gaps / draws.temperatures[row].clamp(min=COLDEST)
    kept = _in_top_k(logits, int(draws.top_k[row]))
    if draws.top_p[row] < 1.0:
        masses = (depths.exp() * UNIT).long()
        kept &= _in_top_p(logits, masses.where(kept, 0), draws.top_p[row])
    kept &= gaps >= draws.min_gaps[row]
    token_ids = torch.arange(len(logits), device=logits.device)
    scores = depths.double() + gumbel_noise(token_ids, draws.keys[row])
    return scores.where(kept, -torch.inf).max(dim=0).indices


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
