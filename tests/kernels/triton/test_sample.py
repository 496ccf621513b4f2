"""The threshold search against sorting and running sums, and both against the distribution."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from kernels.reference.sample import Draws, min_gap
from kernels.reference.sample import sample as reference_sample
from kernels.triton.sample import sample
from kernels.triton.sample_candidates import CAPACITY
from tests.kernels.triton_places import DEVICES

KEY_OF_A_LATE_TOKEN = 3081012064131973355


def draws_for(num_rows: int, device: str, chance: random.Random, vocab_size: int) -> Draws:
    """A mix: greedy rows, rows with one limit, with several, with none."""

    def pick(values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([chance.choice(values) for _ in range(num_rows)], dtype=dtype)

    return Draws(
        temperatures=pick([0.0, 0.3, 1.0, 1.0, 2.0], torch.float32).to(device),
        top_k=pick([0, 0, 1, 5, 100, vocab_size - 1, vocab_size + 7], torch.int32).to(device),
        top_p=pick([1.0, 1.0, 0.99, 0.9, 0.5, 1e-6], torch.float64).to(device),
        min_gaps=pick([min_gap(p, 1.0) for p in (0.0, 0.0, 0.01, 0.3, 1.0)], torch.float32).to(
            device
        ),
        keys=pick([chance.randrange(-(2**63), 2**63) for _ in range(8)], torch.int64).to(device),
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("vocab_size", "seed"),
    [(1, 0), (50, 1), (50, 2), (4097, 0), (4097, 2), (9000, 1), (9000, 2)],
)
def test_ids_are_those_of_the_reference(vocab_size: int, seed: int, device: str) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    logits = torch.randn(8, vocab_size) * chance.choice([0.2, 2.0, 6.0])
    if seed == 2:
        logits = (logits * 2).round() / 2  # many ties
        logits[1, ::3] = -torch.inf
    logits = logits.to(device)
    draws = draws_for(8, device, chance, vocab_size)
    maxima, ids = sample(logits, draws)
    expected_maxima, expected = reference_sample(logits, draws)
    assert torch.equal(maxima, expected_maxima)
    assert ids.tolist() == expected.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_has_the_same_token_alone_and_in_any_batch(device: str) -> None:
    torch.manual_seed(5)
    logits = (torch.randn(9, 9000) * 2).to(device)
    draws = draws_for(9, device, random.Random(5), 9000)
    _, together = sample(logits, draws)
    for row in range(9):
        only = slice(row, row + 1)
        columns = ("temperatures", "top_k", "top_p", "min_gaps", "keys")
        alone = replace(draws, **{name: getattr(draws, name)[only] for name in columns})
        assert sample(logits[only], alone)[1].tolist() == together[only].tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_more_candidates_than_there_is_room_for_are_searched_in_the_row(device: str) -> None:
    vocab_size = 3 * CAPACITY.value
    logits = torch.linspace(1.0, 0.0, vocab_size)[None].to(device)
    draws = Draws(
        temperatures=torch.ones(1, device=device),
        top_k=torch.zeros(1, dtype=torch.int32, device=device),
        top_p=torch.full((1,), 0.9, dtype=torch.float64, device=device),
        min_gaps=torch.full((1,), -torch.inf, device=device),
        keys=torch.tensor([KEY_OF_A_LATE_TOKEN], device=device),
    )
    last = int(sample(logits, draws)[1])
    assert last == int(reference_sample(logits, draws)[1])
    assert CAPACITY.value < last < vocab_size - 1


@pytest.mark.parametrize("device", DEVICES)
def test_rows_without_a_finite_maximum_are_shown_and_leave_others_alone(device: str) -> None:
    logits = torch.zeros(4, 700, device=device)
    logits[0, 300], logits[2] = torch.nan, -torch.inf
    logits[3, 699] = 30.0
    draws = draws_for(4, device, random.Random(2), 700)
    draws = replace(draws, temperatures=torch.full((4,), 0.1, device=device))
    maxima, ids = sample(logits, draws)
    assert maxima.isfinite().tolist() == [False, True, False, True]
    assert int(ids[3]) == 699
    assert all(0 <= token_id < 700 for token_id in ids.tolist())


@pytest.mark.parametrize("device", DEVICES)
def test_draws_follow_the_exact_distribution(device: str) -> None:
    """The interpreter is too slow for thousands of rows: there the reference draws, whose ids the
    kernel's are."""
    draw = reference_sample if device == "cpu" else sample
    torch.manual_seed(1)
    logits = (torch.randn(40) * 1.5).to(device)
    num_draws = 4000
    torch.manual_seed(2)
    draws = Draws(
        temperatures=torch.full((num_draws,), 0.8, device=device),
        top_k=torch.full((num_draws,), 30, dtype=torch.int32, device=device),
        top_p=torch.full((num_draws,), 0.95, dtype=torch.float64, device=device),
        min_gaps=torch.full((num_draws,), min_gap(0.02, 0.8), device=device),
        keys=torch.randint(2**63 - 1, (num_draws,)).to(device),
    )
    _, ids = draw(logits.expand(num_draws, 40), draws)
    probabilities = (logits.double() / 0.8).softmax(0)
    order = probabilities.argsort(descending=True)[:30]
    ranked = probabilities[order] / probabilities[order].sum()
    kept = order[(ranked.cumsum(0) - ranked < 0.95) & (ranked >= 0.02 * ranked[0])]
    exact = probabilities[kept] / probabilities[kept].sum()
    counts = torch.bincount(ids, minlength=40)[kept].double()
    assert counts.sum() == num_draws  # nothing that was cut off
    chi_square = ((counts - exact * num_draws).square() / (exact * num_draws)).sum()
    freedom = torch.tensor((len(kept) - 1) / 2, dtype=torch.float64)
    # The keys are fixed: 0.001 is what a right sampler fails once in a thousand seeds.
    assert torch.special.gammaincc(freedom, chi_square.cpu() / 2) > 0.001


def test_what_does_not_fit_is_refused() -> None:
    draws = draws_for(2, "cpu", random.Random(0), 8)
    with pytest.raises(ValueError, match="logits is torch.float64; needed: torch.float32"):
        sample(torch.zeros(2, 8, dtype=torch.float64), draws)
    with pytest.raises(ValueError, match=r"a column of draws has shape \(2,\); needed: \(3,\)"):
        sample(torch.zeros(3, 8), draws)
    with pytest.raises(ValueError, match="524288 tokens; needed: 1 to 524287"):
        sample(torch.zeros(2, 1).expand(2, 1 << 19), draws)
