"""Matrices quantized into groups: how far from the original, and in which numbers."""

from __future__ import annotations

import pytest
import torch

from kernels.quantize import quantize_groups
from kernels.weights import GroupedWeight
from tests.kernels.kernel_sets import random

FLOAT = torch.float32


def in_groups(matrix: torch.Tensor, group: int) -> torch.Tensor:
    return matrix.view(matrix.shape[0], -1, group)


def smallest_to_largest(weight: torch.Tensor, group: int) -> torch.Tensor:
    """4 bits in the plain way: the 15 steps from the smallest to the largest value."""
    groups = in_groups(weight, group)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    steps = (high - low) / 15
    return (low + ((groups - low) / steps).round() * steps).view(weight.shape)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_at_most_half_a_step_off(group: int, dtype: torch.dtype) -> None:
    weight = random(50, 256, dtype=dtype)
    quantized = quantize_groups(weight, bits=8, group=group, dtype=FLOAT)
    error = in_groups((quantized.dequantize() - weight.float()).abs(), group).amax(-1)
    half_steps = in_groups(weight.float().abs(), group).amax(-1) / 254
    # the scale's own rounding, 2 ** -12 of it, times 127, is 1/16 of a half step
    assert (error <= half_steps * (1 + 1 / 16 + 1e-3)).all()


def test_bytes_are_symmetric_around_128() -> None:
    weight = random(3, 64, dtype=FLOAT)
    quantized, mirrored = (
        quantize_groups(matrix, bits=8, dtype=FLOAT) for matrix in (weight, -weight)
    )
    assert torch.equal(quantized.minimums, quantized.scales * -128)
    assert torch.equal(quantized.values.int() + mirrored.values.int(), torch.full((3, 64), 256))


@pytest.mark.parametrize("group", [32, 64, 128])
def test_nibbles_beat_the_range_of_each_group_in_squared_error(group: int) -> None:
    weight = random(200, 512, dtype=FLOAT) + 0.3
    quantized = quantize_groups(weight, bits=4, group=group, dtype=FLOAT)
    assert int(quantized.values.max()) == 15

    def squared(matrix: torch.Tensor) -> torch.Tensor:
        return in_groups(matrix - weight, group).square().sum(-1)

    searched, plain = squared(quantized.dequantize()), squared(smallest_to_largest(weight, group))
    assert searched.sum() < 0.9 * plain.sum()  # 0.87 and 0.88 measured
    assert (searched <= plain * 1.001).all()  # but for the rounding of its scale, no group loses


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_in_groups_already_comes_back(bits: int) -> None:
    values = torch.randint(1, 2**bits, (4, 8, 32), generator=torch.Generator().manual_seed(0))
    values[..., 0], values[..., 1] = (1, 255) if bits == 8 else (0, 15)
    scales = random(4, 8, dtype=torch.float16).float().abs()
    minimums = -(2 ** (bits - 1)) * scales
    stored = GroupedWeight(
        values=values.to(torch.uint8).view(4, 256),
        scales=scales,
        minimums=minimums,
        bits=bits,
        dtype=FLOAT,
    )
    again = quantize_groups(stored.dequantize(), bits=bits, dtype=FLOAT)
    assert torch.equal(again.values, stored.values)
    torch.testing.assert_close(again.dequantize(), stored.dequantize(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [0.0, 0.75, -3.0])
def test_groups_of_one_value_keep_it(value: float, bits: int) -> None:
    quantized = quantize_groups(torch.full((2, 64), value), bits=bits, dtype=torch.bfloat16)
    torch.testing.assert_close(
        quantized.dequantize().float(), torch.full((2, 64), value), rtol=2**-8, atol=0
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_scales_fit_into_the_digits_of_a_float16(bits: int) -> None:
    scales = quantize_groups(random(64, 256, dtype=FLOAT), bits=bits, dtype=FLOAT).scales
    assert torch.equal(scales.half().float(), scales)


def test_rows_do_not_depend_on_how_many_there_are() -> None:
    weight = random(1030, 32, dtype=FLOAT)
    whole = quantize_groups(weight, bits=4, dtype=FLOAT)
    some = quantize_groups(weight[1020:], bits=4, dtype=FLOAT)
    assert torch.equal(whole.values[1020:], some.values)
    assert torch.equal(whole.scales[1020:], some.scales)


@pytest.mark.parametrize(
    ("weight", "bits", "problem"),
    [
        (torch.ones(2, 48), 4, "48 inputs in groups of 32"),
        (torch.ones(2, 32), 5, "5 bits; needed: 4 or 8"),
        (torch.ones(32), 8, "weight has 1 dimensions; needed: 2"),
        (torch.full((2, 32), torch.inf), 8, "weight is not finite"),
        (torch.full((2, 32), torch.nan), 4, "weight is not finite"),
    ],
)
def test_what_cannot_be_quantized_is_refused(weight: torch.Tensor, bits: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        quantize_groups(weight, bits=bits, dtype=FLOAT)
