"""The noise of tokens: that of a Gumbel distribution, whichever way one goes through it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine.sampling.random_numbers import noise_keys
from kernels.reference.token_noise import gumbel_noise

VOCAB_SIZE = 4096
NUM_KEYS = 400


@pytest.fixture(scope="module")
def uniforms() -> torch.Tensor:
    """float64 [NUM_KEYS, VOCAB_SIZE]: the noise back as u, for the keys of a text."""
    keys = noise_keys([5] * NUM_KEYS, [0] * NUM_KEYS, range(NUM_KEYS)).view(np.int64)
    noise = gumbel_noise(torch.arange(VOCAB_SIZE), torch.from_numpy(keys)[:, None])
    return 1.0 - (-(-noise).exp()).exp()


def p_value(counts: torch.Tensor) -> float:
    """Of a chi-square test of equal chances."""
    wanted = counts.double().mean()
    half = ((counts - wanted).square() / wanted).sum() / 2
    return float(torch.special.gammaincc(torch.tensor((counts.numel() - 1) / 2).double(), half))


def cells(values: torch.Tensor, num: int) -> torch.Tensor:
    return (values * num).long()


def test_numbers_fill_the_unit_interval_evenly(uniforms: torch.Tensor) -> None:
    assert p_value(torch.bincount(cells(uniforms, 1024).flatten(), minlength=1024)) > 1e-4


@pytest.mark.parametrize(
    ("row_step", "token_step"), [(0, 1), (0, 2), (0, 64), (0, 2048), (1, 0), (200, 0), (1, 1)]
)
def test_neighbours_are_independent(uniforms: torch.Tensor, row_step: int, token_step: int) -> None:
    some = cells(uniforms, 32)
    other = some.roll((-row_step, -token_step), dims=(0, 1))
    pairs = torch.bincount((some * 32 + other).flatten(), minlength=1024)
    assert p_value(pairs) > 1e-4


def test_the_lowest_numbers_are_as_rare_as_they_should_be() -> None:
    """These are where unlikely tokens win: of 2**21 words, 16 fall below 2**-17."""
    noise = gumbel_noise(torch.arange(2**21), torch.tensor(0x5EED_0BAD_CAFE_F00D))
    small = (-noise).exp()[noise > 17 * math.log(2)].tolist()
    assert 4 <= len(small) <= 32
    assert len({value * 2**52 % 2**20 // 1 for value in small}) == len(small)  # the low bits too


def test_noise_is_finite_at_both_ends() -> None:
    """The words of all tokens are a permutation: the extremes are some token's."""
    noise = gumbel_noise(torch.arange(2**20), torch.tensor(7))
    assert noise.isfinite().all()
