"""The likeliest token: the first of equals, and nothing where a row is not finite."""

from __future__ import annotations

import math

import pytest
import torch

import kernels.dispatch.likeliest
from kernels.dispatch.likeliest import likeliest
from kernels.reference.row_argmax import row_argmax as reference_argmax
from kernels.token_mask import TokenMask
from tests.kernels.dispatch.test_mask_logits import masks_of
from tests.kernels.kernel_sets import CPU_SETS, native_library_of, random

WIDTHS = [1, 7, 16, 128, 1000, 1024, 1025, 5000, 49152]


@pytest.fixture(params=CPU_SETS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    library = None if request.param == "torch" else native_library_of(request.param)
    monkeypatch.setattr(kernels.dispatch.likeliest, "native_library", lambda: library)
    return str(request.param)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_give_the_place_of_their_maximum(implementation: str, width: int) -> None:
    logits = random(5, width, dtype=torch.float32)
    rows = [4, 0, 2, 2]
    assert likeliest(logits, rows) == logits[rows].argmax(-1).tolist()
    assert likeliest(logits[:, : width // 2 + 1], [1]) == [
        int(logits[1, : width // 2 + 1].argmax())
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_of_equal_maxima_the_first_counts(implementation: str, width: int) -> None:
    coarse = random(20, width, dtype=torch.float32, seed=3).mul(2).round()
    firsts = [int((row == row.max()).nonzero()[0]) for row in coarse]
    assert likeliest(coarse, range(20)) == firsts
    assert reference_argmax(coarse)[1].tolist() == firsts
    assert likeliest(torch.zeros(1, width), [0]) == [0]


@pytest.mark.parametrize("width", [3, 128, 3000])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.nan])
def test_a_row_without_a_finite_maximum_has_no_token(
    implementation: str, width: int, bad: float
) -> None:
    logits = random(4, width, dtype=torch.float32)
    logits[1, 0], logits[2, width - 1], logits[3] = bad, bad, -math.inf
    good = int(logits[0].argmax())
    assert likeliest(logits, [0, 1, 2, 3]) == [good, None, None, None]
    logits[0, 1:] = -math.inf
    assert likeliest(logits, [0]) == [0]


def test_no_rows_are_no_tokens_and_a_missing_row_is_an_error(implementation: str) -> None:
    logits = random(2, 9, dtype=torch.float32)
    assert likeliest(logits, []) == []
    for rows in ([2], [0, -1]):
        with pytest.raises(IndexError, match="of 2"):
            likeliest(logits, rows)


@pytest.mark.parametrize("vocab_size", [5, 128, 384])
def test_on_a_device_a_value_that_is_not_a_number_wins(vocab_size: int) -> None:
    logits = torch.zeros(3, vocab_size)
    logits[0, [2, vocab_size - 1]] = 1.0
    logits[2, 3] = torch.nan
    values, ids = reference_argmax(logits)
    assert ids[:2].tolist() == [2, 0]
    assert values[:2].tolist() == [1.0, 0.0]
    assert bool(values[2].isnan())


@pytest.mark.parametrize("width", [1, 16, 31, 33, 100, 1000, 5000])
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_of_a_masked_row_only_the_tokens_of_its_mask_count(
    implementation: str, width: int, share: float
) -> None:
    logits = random(6, width, dtype=torch.float32).mul(2).round()
    allowed = torch.rand(4, width, generator=torch.Generator().manual_seed(width)) < share
    before, rows = logits.clone(), [5, 1, 1, 3]
    masks = [*masks_of(allowed[:3]), None]
    expected: list[int | None] = []
    for row, mask in zip(rows, [*allowed[:3], torch.ones(width, dtype=torch.bool)], strict=True):
        values = logits[row].masked_fill(~mask, -math.inf)
        expected.append(int(values.argmax()) if mask.any() else None)
    assert likeliest(logits, rows, masks) == expected
    assert torch.equal(logits, before)


def test_of_a_masked_row_a_number_that_is_none_counts_where_its_token_may_come(
    implementation: str,
) -> None:
    logits = random(2, 64, dtype=torch.float32)
    logits[:, 40] = math.nan
    allowed = torch.zeros(2, 64, dtype=torch.bool)
    allowed[0, [3, 40]], allowed[1, 3] = True, True
    assert likeliest(logits, [0, 1], masks_of(allowed)) == [None, 3]


@pytest.mark.parametrize("places", [(5, 40), (31, 32), (1023, 1024), (2047, 4999), (16, 4000)])
def test_of_equal_maxima_that_may_come_the_first_counts(
    implementation: str, places: tuple[int, int]
) -> None:
    """However far apart; one that may not come does not count, though it is before them."""
    logits = torch.zeros(1, 5000)
    logits[0, list(places)], logits[0, 3] = 2.0, 2.0
    allowed = torch.ones(1, 5000, dtype=torch.bool)
    allowed[0, 3] = False
    assert likeliest(logits, [0], masks_of(allowed)) == [places[0]]
    allowed[0, places[0]] = False
    assert likeliest(logits, [0], masks_of(allowed)) == [places[1]]


@pytest.mark.parametrize("place", [0, 31, 1024, 4999])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_none_counts_wherever_its_token_may_come(
    implementation: str, place: int, bad: float
) -> None:
    logits = random(1, 5000, dtype=torch.float32)
    logits[0, place] = bad
    allowed = torch.ones(1, 5000, dtype=torch.bool)
    assert likeliest(logits, [0], masks_of(allowed)) == [None]
    allowed[0, place] = False
    expected = int(logits[0].masked_fill(~allowed[0], -math.inf).argmax())
    assert likeliest(logits, [0], masks_of(allowed)) == [expected]


def test_bits_behind_the_last_token_are_no_tokens(implementation: str) -> None:
    whole = torch.full((1, 64), 9.0)
    whole[0, :40] = torch.arange(40.0).div(10)
    mask = TokenMask(torch.full((2,), -1, dtype=torch.int32))
    assert likeliest(whole[:, :40].contiguous(), [0], [mask]) == [39]


def test_masks_that_are_too_few_or_of_another_size_are_refused(implementation: str) -> None:
    logits, mask = random(2, 64, dtype=torch.float32), TokenMask.blank(2)
    with pytest.raises(ValueError):
        likeliest(logits, [0, 1], [mask])
    with pytest.raises(ValueError, match="a mask has 3 words; needed: 2"):
        likeliest(logits, [0, 1], [None, TokenMask.blank(3)])
