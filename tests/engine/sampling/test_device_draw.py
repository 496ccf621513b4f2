"""What a device is told of a batch, and what it draws: the tokens of the reference, on each."""

from __future__ import annotations

import random

import pytest
import torch

from cluster.sampling import SamplingParams
from engine.sampling.device_draw import draw_on_device, draws_of
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler
from kernels.reference.sample import sample as reference_sample


def rows_of(count: int, seed: int) -> list[SamplingRow]:
    """One logit row each; parameters of every kind."""
    chance = random.Random(seed)
    return [
        SamplingRow(
            logit_row=i,
            params=SamplingParams(
                max_tokens=9,
                temperature=chance.choice([0.0, 0.3, 1.0, 2.0]),
                top_k=chance.choice([0, 0, 1, 7, 200]),
                top_p=chance.choice([1.0, 1.0, 0.9, 0.4]),
                min_p=chance.choice([0.0, 0.0, 0.05, 0.5]),
                seed=chance.randrange(2**64),
            ),
            choice=chance.randrange(3),
            token_ids=[0] * chance.randrange(1, 50),
            num_prompt=1,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_the_sampler_s_tokens_are_those_of_the_reference(seed: int) -> None:
    torch.manual_seed(seed)
    logits, rows = torch.randn(40, 300) * 2, rows_of(40, seed)
    _, ids = reference_sample(logits, draws_of(rows, torch.device("cpu")))
    tokens = [token.token_id for token in Sampler(()).sample(logits, rows) if token]
    assert tokens == ids.tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_sampler_draws_on_the_gpu_what_it_draws_on_the_cpu() -> None:
    torch.manual_seed(1)
    logits, rows = torch.randn(64, 30_000) * 2, rows_of(64, 1)
    assert Sampler(()).sample(logits.cuda(), rows) == Sampler(()).sample(logits, rows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_greedy_rows_of_some_logits_are_chosen_on_the_gpu_as_on_the_cpu() -> None:
    torch.manual_seed(2)
    logits = torch.randn(64, 30_000)
    logits[9] = torch.nan
    params = SamplingParams(max_tokens=1, temperature=0.0)
    rows = [
        SamplingRow(logit_row=row, params=params, choice=0, token_ids=[0], num_prompt=1)
        for row in (5, 9, 33)
    ]
    assert Sampler(()).sample(logits.cuda(), rows) == Sampler(()).sample(logits, rows)


def test_limits_are_promised_away_only_when_no_row_has_them() -> None:
    rows = rows_of(30, 3)
    without = [row for row in rows if not row.params.top_k and row.params.top_p == 1.0]
    assert 0 < len(without) < len(rows)
    device = torch.device("cpu")
    assert draws_of(rows, device).has_limits
    assert not draws_of(without, device).has_limits


def test_a_row_that_the_model_failed_shows_in_its_maximum() -> None:
    logits = torch.zeros(3, 8)
    logits[1, 4] = torch.nan
    maxima, _ = draw_on_device(logits, rows_of(3, 4))
    assert maxima.isfinite().tolist() == [True, False, True]
