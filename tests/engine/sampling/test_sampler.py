"""Sampling against the exact distribution, written out in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from cluster.sampling import DRAWS_VERSION, SamplingParams
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler

LOGITS = [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -3.0]
CHI_SQUARE_LIMITS = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46, 7: 24.32}
"""By degrees of freedom, p = 0.001; the seeds are fixed."""
EOS = 7


def row(logit_row: int = 0, *, tokens: list[int] | None = None, **params: Any) -> SamplingRow:
    """A row whose prompt is one token, 0, followed by generated `tokens`."""
    return SamplingRow(
        logit_row=logit_row,
        params=SamplingParams(**({"max_tokens": 100} | params)),
        choice=0,
        token_ids=[0, *(tokens or [])],
        num_prompt=1,
    )


def draw(rows: list[SamplingRow], logits: torch.Tensor | None = None) -> list[int]:
    given = torch.tensor([LOGITS]) if logits is None else logits
    tokens = Sampler((EOS,)).sample(given, rows)
    return [token.token_id for token in tokens if token is not None]


def exact(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> dict[int, float]:
    """The distribution, by the definitions, one token at a time."""
    weights = {i: math.exp(logit / temperature) for i, logit in enumerate(LOGITS)}
    ranked = sorted(weights, key=lambda i: -weights[i])[: top_k or None]
    total, kept, mass = sum(weights[i] for i in ranked), [], 0.0
    for i in ranked:
        if mass / total < top_p and weights[i] >= min_p * weights[ranked[0]]:
            kept.append(i)
        mass += weights[i]
    whole = sum(weights[i] for i in kept)
    return {i: weights[i] / whole for i in kept}


def test_what_seeds_draw_has_a_version() -> None:
    """Where it changes, `DRAWS_VERSION` is raised, and these are drawn anew."""
    drawn = draw([row(seed=seed, temperature=2.0) for seed in range(24)])
    assert (DRAWS_VERSION, "".join(map(str, drawn))) == (1, "504040220012151561230643")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.8},
        {"top_p": 0.01},
        {"min_p": 0.2},
        {"top_k": 5, "top_p": 0.7, "temperature": 1.3},
        {"top_k": 6, "min_p": 0.15, "top_p": 0.95},
    ],
    ids=str,
)
def test_samples_follow_the_exact_distribution(params: dict[str, Any]) -> None:
    num_draws = 4000
    counts = Counter(draw([row(seed=seed, **params) for seed in range(num_draws)]))
    expected = exact(**params)
    assert set(counts) <= set(expected)
    if len(expected) > 1:
        chi_square = sum(
            (counts[i] - p * num_draws) ** 2 / (p * num_draws) for i, p in expected.items()
        )
        assert chi_square < CHI_SQUARE_LIMITS[len(expected) - 1]


def test_top_p_looks_beyond_its_first_candidates_when_the_mass_is_spread() -> None:
    logits = torch.zeros(1, 5000)
    drawn = draw([row(seed=seed, top_p=0.9) for seed in range(200)], logits)
    assert max(drawn) > 4500  # equal logits: ties with the last one stay
    logits = torch.linspace(1.0, 0.0, 5000)[None]
    drawn = draw([row(seed=seed, top_p=0.5) for seed in range(200)], logits)
    weights = logits[0].double().exp()
    last = int((weights.cumsum(0) / weights.sum() < 0.5).sum())
    assert last > 1024
    assert 1024 < max(drawn) <= last


def test_a_row_gives_the_same_token_alone_and_in_any_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 50) * 3
    rows = [
        row(0, temperature=0.0),
        row(1, seed=1, top_k=4, tokens=[3, 3]),
        row(2, seed=2, top_p=0.6, repetition_penalty=1.3, tokens=[1, 2]),
        row(3, seed=3, min_p=0.1, presence_penalty=1.0, tokens=[9]),
        row(4, seed=4, temperature=1.7, logit_bias={5: 3.0}),
        row(5, temperature=0.0, frequency_penalty=2.0, tokens=[4, 4, 4]),
    ]
    alone = [draw([item], logits)[0] for item in rows]
    assert draw(rows, logits) == alone
    assert draw(rows[::-1], logits) == alone[::-1]


def test_choices_of_one_prompt_share_a_row_of_logits() -> None:
    logits = torch.tensor([[5.0, 0.0], [0.0, 5.0]])
    rows = [row(1, temperature=0.0), row(1, temperature=0.0), row(0, temperature=0.0)]
    assert draw(rows, logits) == [1, 1, 0]


def test_sampling_leaves_the_logits_as_they_are() -> None:
    logits = torch.tensor([LOGITS])
    draw([row(logit_bias={1: 5.0}, repetition_penalty=2.0, min_tokens=3, tokens=[1])], logits)
    assert logits.tolist() == [LOGITS]


def test_temperature_near_zero_is_the_likeliest_token() -> None:
    assert draw([row(temperature=1e-300, seed=seed) for seed in range(20)]) == [0] * 20


@pytest.mark.parametrize(
    ("params", "tokens", "expected"),
    [
        ({"repetition_penalty": 2.0}, [1], {0: 1.0, 1: 0.75}),  # the prompt's token 0 as well
        ({"repetition_penalty": 2.0}, [6], {0: 1.0, 6: -2.0}),
        ({"presence_penalty": 0.5}, [1, 1], {1: 1.0}),
        ({"frequency_penalty": 0.5}, [1, 1, 2], {1: 0.5, 2: 0.5}),
        ({"presence_penalty": -1.0, "frequency_penalty": 0.25}, [2], {2: 1.75}),
        ({"logit_bias": {3: 2.0, 4: -1.0}}, [], {3: 2.5, 4: -1.0}),
        (
            {"repetition_penalty": 2.0, "presence_penalty": 0.5, "logit_bias": {1: 4.0}},
            [1],
            {0: 1.0, 1: 4.25},
        ),
    ],
)
def test_penalties_and_bias_change_what_logprobs_report(
    params: dict[str, Any], tokens: list[int], expected: dict[int, float]
) -> None:
    adjusted = [expected.get(i, logit) for i, logit in enumerate(LOGITS)]
    whole = math.log(sum(math.exp(logit) for logit in adjusted))
    item = row(tokens=tokens, logprobs=8, temperature=0.7, top_k=2, seed=1, **params)
    token = Sampler((EOS,)).sample(torch.tensor([LOGITS]), [item])[0]
    assert token is not None
    reported = dict(token.top)
    for i, logit in enumerate(adjusted):
        assert reported[i] == pytest.approx(logit - whole, abs=1e-5)
    assert token.logprob == pytest.approx(adjusted[token.token_id] - whole, abs=1e-5)
    assert [p for _, p in token.top] == sorted(reported.values(), reverse=True)


def test_logprobs_of_zero_alternatives_are_the_chosen_tokens_only() -> None:
    token = Sampler(()).sample(torch.tensor([LOGITS]), [row(temperature=0.0, logprobs=0)])[0]
    assert token is not None
    assert token.top == ()
    assert token.logprob == pytest.approx(2.0 - math.log(sum(map(math.exp, LOGITS))), abs=1e-5)


def test_penalties_leave_with_the_request_that_asked_for_them() -> None:
    sampler, logits = Sampler(()), torch.tensor([LOGITS])
    penalized = row(temperature=0.0, frequency_penalty=2.0, tokens=[0, 0])
    plain = row(temperature=0.0, tokens=[0, 0])
    drawn = [sampler.sample(logits, [item])[0] for item in (penalized, plain)]
    assert [token.token_id for token in drawn if token] == [1, 0]


def test_an_end_of_text_cannot_come_before_min_tokens() -> None:
    logits = torch.zeros(1, 8)
    logits[0, EOS], logits[0, 3] = 9.0, 8.0
    early = {"temperature": 0.0, "min_tokens": 2}
    assert draw([row(tokens=[1], **early)], logits) == [3]
    assert draw([row(tokens=[1], stop_token_ids=(3,), **early)], logits) == [0]
    assert draw([row(tokens=[1, 1], **early)], logits) == [EOS]
    assert draw([row(tokens=[1], ignore_eos=True, **early)], logits) == [EOS]


def test_a_row_without_finite_logits_fails_alone() -> None:
    logits = torch.tensor([LOGITS, [math.nan] * 8, [-math.inf] * 8, LOGITS])
    for params in ({"temperature": 0.0}, {"seed": 3, "top_p": 0.9}, {"logprobs": 2}):
        tokens = Sampler(()).sample(logits, [row(i, **params) for i in range(4)])
        assert [token is None for token in tokens] == [False, True, True, False]
