"""Two models that draw with the same noise: how often their tokens are equal.

Reference: with noise that is shared, tokens of p and q are equal with a chance of
sum_i 1 / sum_j max(p_j / p_i, q_j / q_i); one number through both cumulative distributions does
worse, and a draft that is accepted or rejected by its probabilities, sum_i min(p_i, q_i), best.
"""

from __future__ import annotations

import pytest
import torch

from cluster.sampling import SamplingParams
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler

VOCAB_SIZE = 2000
NUM_DRAWS = 1500


def models(drift: float) -> torch.Tensor:
    """float32 [2, VOCAB_SIZE]: a target's logits, and a draft's."""
    chance = torch.Generator().manual_seed(12)
    target = torch.randn(VOCAB_SIZE, generator=chance) * 3
    return torch.stack([target, target + drift * torch.randn(VOCAB_SIZE, generator=chance)])


def share_equal(logits: torch.Tensor) -> float:
    """Of tokens that the sampler draws from both rows, for the choices of one request."""
    params = SamplingParams(max_tokens=9, seed=4)
    drawn = []
    for row in range(2):
        rows = [
            SamplingRow(logit_row=row, params=params, choice=i, token_ids=[0], num_prompt=1)
            for i in range(NUM_DRAWS)
        ]
        drawn.append(Sampler(()).sample(logits, rows))
    return sum(bool(a == b) for a, b in zip(*drawn, strict=True)) / NUM_DRAWS


def equal_by_inverse(p: torch.Tensor, q: torch.Tensor) -> float:
    """The chance with one number through both cumulative distributions."""
    after_p, after_q = p.cumsum(0), q.cumsum(0)
    both = torch.minimum(after_p, after_q) - torch.maximum(after_p - p, after_q - q)
    return float(both.clamp(min=0).sum())


def equal_by_noise(p: torch.Tensor, q: torch.Tensor) -> float:
    """The chance with the noise of each token shared."""
    ratios = torch.maximum(p / p[:, None], q / q[:, None])
    return float((1 / ratios.sum(dim=1)).sum())


@pytest.mark.parametrize("drift", [0.5, 1.0, 2.0])
def test_a_draft_is_accepted_as_often_as_shared_noise_allows(drift: float) -> None:
    logits = models(drift)
    p, q = logits.double().softmax(dim=-1)
    expected, best = equal_by_noise(p, q), float(torch.minimum(p, q).sum())
    assert share_equal(logits) == pytest.approx(expected, abs=0.05)  # four standard deviations
    assert equal_by_inverse(p, q) + 0.06 < expected < best < expected + 0.08
