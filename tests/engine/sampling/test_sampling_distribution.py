"""What the engine's sampler draws, over many positions, against the exact distribution.

The noise is that of fixed seeds, so that a test passes or fails once and for all. With
a right sampler a p-value is uniform on [0, 1]: of these forty, one would fall below LIMIT in about
250 choices of seeds. The last test shows what LIMIT still sees.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from cluster.sampling import SamplingParams
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler

LIMIT = 1e-4
NUM_DRAWS = 6000
EOS = 11
HISTORY = [3, 1, 4, 1, 5]
"""The tokens generated so far; the prompt is [9, 2]."""
FLAT = [0.4, 0.1, 0.9, -0.2, 0.3, 0.0, 0.7, -0.5, 0.2, 0.6, -0.1, 0.5]
PEAKED = [6.0, 4.5, 4.0, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -3.0, 3.0]
TIED = [2.0, 2.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0, -1.0, -1.0]
SHAPES = {"flat": FLAT, "peaked": PEAKED, "tied": TIED}

PARAMS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.8},
    {"top_k": 4},
    {"top_p": 0.7},
    {"min_p": 0.25},
    {"temperature": 1.3, "top_k": 8, "top_p": 0.8},
    {"temperature": 0.8, "top_k": 9, "top_p": 0.95, "min_p": 0.05},
    {"repetition_penalty": 1.4},
    {"presence_penalty": 0.6, "frequency_penalty": 0.4},
    {"logit_bias": {0: -1.0, 7: 2.5}},
    {"min_tokens": 9},
    {
        "temperature": 1.2,
        "top_k": 10,
        "top_p": 0.9,
        "min_p": 0.02,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "logit_bias": {2: 1.0},
        "min_tokens": 9,
    },
]


def adjusted(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """By the definitions: penalties, then bias, then the ban on ends."""
    result = []
    for token_id, logit in enumerate(logits):
        if token_id in (9, 2, *HISTORY):
            penalty = params.repetition_penalty
            logit = logit / penalty if logit > 0 else logit * penalty
        count = HISTORY.count(token_id)
        logit -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
        logit += (params.logit_bias or {}).get(token_id, 0.0)
        is_banned = token_id == EOS and len(HISTORY) < params.min_tokens
        result.append(-math.inf if is_banned else logit)
    return result


def exact(logits: Sequence[float], params: SamplingParams) -> dict[int, float]:
    """The distribution, one token at a time: top-k with ties, top-p of the rest, min-p."""
    scaled = [logit / params.temperature for logit in adjusted(logits, params)]
    top = max(scaled)
    weights = {i: math.exp(logit - top) for i, logit in enumerate(scaled) if logit > -math.inf}
    ranked = sorted(weights.values(), reverse=True)
    if params.top_k:
        lowest = ranked[min(params.top_k, len(ranked)) - 1]
        ranked = [weight for weight in ranked if weight >= lowest]
    total, mass, lowest = sum(ranked), 0.0, ranked[0]
    for weight in ranked:
        if params.top_p < 1.0 and mass >= params.top_p * total:
            break
        lowest, mass = weight, mass + weight
    kept = {i: w for i, w in weights.items() if w >= lowest and w >= params.min_p}
    whole = sum(kept.values())
    return {i: weight / whole for i, weight in kept.items()}


def drawn(logits: Sequence[float], params: SamplingParams) -> Counter[int]:
    """One token for each of many choices of the same request, in a few batches."""
    sampler, counts = Sampler((EOS,)), Counter[int]()
    batch = 1000
    for first in range(0, NUM_DRAWS, batch):
        rows = [
            SamplingRow(
                logit_row=0,
                params=params,
                choice=choice,
                token_ids=[9, 2, *HISTORY],
                num_prompt=2,
            )
            for choice in range(first, first + batch)
        ]
        tokens = sampler.sample(torch.tensor([logits]), rows)
        counts.update(token.token_id for token in tokens if token is not None)
    return counts


def p_value(counts: Counter[int], expected: dict[int, float]) -> float:
    """Of a chi-square test; tokens of less than ten expected draws count as one."""
    num_draws = sum(counts.values())
    common = {i: p for i, p in expected.items() if p * num_draws >= 10}
    rare = 1.0 - sum(common.values())
    cells = [(counts[i], p * num_draws) for i, p in common.items()]
    if rare * num_draws >= 10:
        cells.append((num_draws - sum(counts[i] for i in common), rare * num_draws))
    if len(cells) < 2:
        return 1.0
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    half_freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half_freedom, torch.tensor(statistic / 2).double()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_tokens_follow_the_exact_distribution(params: dict[str, Any], shape: str) -> None:
    asked = SamplingParams(**({"max_tokens": 100, "seed": 20_26} | params))
    expected = exact(SHAPES[shape], asked)
    counts = drawn(SHAPES[shape], asked)
    assert counts.total() == NUM_DRAWS
    assert set(counts) <= set(expected)  # nothing that was cut off or banned
    assert p_value(counts, expected) > LIMIT


def test_positions_of_one_choice_are_independent_draws_too() -> None:
    asked = SamplingParams(max_tokens=NUM_DRAWS, seed=7, top_k=6)
    sampler, logits = Sampler(()), torch.tensor([PEAKED])
    counts: Counter[int] = Counter()
    pairs: Counter[int] = Counter()
    last = 0
    for position in range(NUM_DRAWS):
        row = SamplingRow(
            logit_row=0, params=asked, choice=0, token_ids=range(position + 1), num_prompt=1
        )
        token = sampler.sample(logits, [row])[0]
        assert token is not None
        counts[token.token_id] += 1
        if position % 2:
            pairs[last * len(PEAKED) + token.token_id] += 1
        last = token.token_id
    expected = exact(PEAKED, asked)
    assert p_value(counts, expected) > LIMIT
    both = {a * len(PEAKED) + b: p * q for a, p in expected.items() for b, q in expected.items()}
    assert p_value(pairs, both) > LIMIT


def test_the_test_itself_sees_a_small_bias() -> None:
    """One draw in thirty moved from the likeliest token to the next."""
    asked = SamplingParams(max_tokens=100, seed=3)
    counts, expected = drawn(FLAT, asked), exact(FLAT, asked)
    moved = NUM_DRAWS // 30
    counts[2] -= moved
    counts[6] += moved
    assert p_value(counts, expected) < LIMIT
