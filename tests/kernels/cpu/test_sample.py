"""Sampling on a CPU against the reference: one contract, to the last token."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
import torch

from kernels.cpu.row_passes import NativePasses, RowPasses, TorchPasses
from kernels.cpu.sample import sample_by
from kernels.dispatch.sample import sample
from kernels.reference.sample import Draws, min_gap
from kernels.reference.sample import sample as reference_sample
from tests.kernels.kernel_sets import CPU_SETS, native_library_of

SHARES = [1.0, 1.0, 0.99, 0.9, 0.5, 1e-6, 1 - 2**-53]


@pytest.fixture(params=CPU_SETS)
def passes(request: pytest.FixtureRequest) -> RowPasses:
    if request.param == "torch":
        return TorchPasses()
    return NativePasses(native_library_of(request.param))


def mixed_draws(num_rows: int, vocab_size: int, chance: random.Random) -> Draws:
    """Greedy rows, rows with one limit, with several, with none."""

    def pick(values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([chance.choice(values) for _ in range(num_rows)], dtype=dtype)

    return Draws(
        temperatures=pick([0.0, 1e-9, 0.3, 1.0, 1.0, 2.0], torch.float32),
        top_k=pick([0, 0, 1, 5, 100, 128, 300, vocab_size - 1, vocab_size + 7], torch.int32),
        top_p=pick(SHARES, torch.float64),
        min_gaps=pick([min_gap(p, 1.0) for p in (0.0, 0.0, 1e-9, 0.01, 0.3, 1.0)], torch.float32),
        keys=pick([chance.randrange(-(2**63), 2**63) for _ in range(8)], torch.int64),
    )


def plain_draws(keys: torch.Tensor) -> Draws:
    """At temperature 1, without any limit."""
    num_rows = len(keys)
    return Draws(
        temperatures=torch.ones(num_rows),
        top_k=torch.zeros(num_rows, dtype=torch.int32),
        top_p=torch.ones(num_rows, dtype=torch.float64),
        min_gaps=torch.full((num_rows,), -torch.inf),
        keys=keys,
        has_limits=False,
    )


@pytest.mark.parametrize("vocab_size", [1, 2, 50, 128, 129, 400, 4097, 20_000])
@pytest.mark.parametrize("seed", range(4))
def test_tokens_are_those_of_the_reference(passes: RowPasses, seed: int, vocab_size: int) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    logits = torch.randn(20, vocab_size) * chance.choice([0.02, 0.2, 2.0, 6.0])
    if seed == 2:
        logits = (logits * 2).round() / 2  # many ties
        logits[1, 1::3] = -torch.inf
    draws = mixed_draws(20, vocab_size, chance)
    maxima, ids = sample_by(passes, logits, draws)
    expected_maxima, expected = reference_sample(logits, draws)
    assert torch.equal(maxima, expected_maxima)
    assert ids.tolist() == expected.tolist()


def test_tokens_that_all_are_unlikely_are_drawn_evenly(passes: RowPasses) -> None:
    """Of 20,000 that are alike; 500 draws of them give some 494 different ones."""
    keys = torch.randint(-(2**63), 2**63 - 1, (500,), generator=torch.Generator().manual_seed(6))
    _, ids = sample_by(passes, torch.zeros(500, 20_000), plain_draws(keys))
    assert len(set(ids.tolist())) > 480
    counts = np.histogram(ids.numpy(), bins=10, range=(0, 20_000))[0]
    assert ((counts - 50.0) ** 2 / 50.0).sum() < 27.9  # 9 degrees of freedom, p = 0.001


def test_a_row_has_the_same_token_alone_and_in_any_batch(passes: RowPasses) -> None:
    torch.manual_seed(5)
    logits = torch.randn(21, 5000) * 2
    draws = mixed_draws(21, 5000, random.Random(5))
    _, together = sample_by(passes, logits, draws)
    for row in range(21):
        assert int(sample_by(passes, logits[row : row + 1], draws.of([row]))[1]) == together[row]


def test_a_row_that_the_model_failed_shows_and_its_neighbours_are_drawn(passes: RowPasses) -> None:
    torch.manual_seed(2)
    logits = torch.randn(12, 300)
    logits[3, 7], logits[5, 0] = torch.nan, torch.inf
    logits[7] = -torch.inf
    draws = plain_draws(torch.randint(2**63 - 1, (12,)))
    maxima, ids = sample_by(passes, logits, draws)
    expected_maxima, expected = reference_sample(logits, draws)
    is_finite = maxima.isfinite()
    assert torch.equal(is_finite, expected_maxima.isfinite())
    assert is_finite.sum() == 9
    assert torch.equal(ids[is_finite], expected[is_finite])
    assert ids.min() >= 0
    assert ids.max() < 300


def test_what_it_is_given_stays_as_it_is(passes: RowPasses) -> None:
    torch.manual_seed(3)
    logits, draws = torch.randn(20, 900), mixed_draws(20, 900, random.Random(3))
    before = logits.clone()
    columns = {f.name: getattr(draws, f.name) for f in fields(draws) if f.name != "has_limits"}
    kept = {name: tensor.clone() for name, tensor in columns.items()}
    sample_by(passes, logits, draws)
    assert torch.equal(logits, before)
    assert all(torch.equal(columns[name], kept[name]) for name in columns)


def test_rows_of_a_wider_tensor_are_sampled_too() -> None:
    torch.manual_seed(4)
    logits = torch.randn(6, 1000)[:, 100:700]
    draws = mixed_draws(6, 600, random.Random(4))
    assert sample(logits, draws)[1].tolist() == reference_sample(logits, draws)[1].tolist()
