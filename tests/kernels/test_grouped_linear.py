"""Packed matrices of low-bit groups against the plain arithmetic, and that against floats."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch

from kernels.cpu.grouped_linear import NativeGroupedLinear, pack_native_linear
from kernels.cpu.packed_linear import PackedLinear
from kernels.cpu.team import TEAM
from kernels.quantize import quantize_groups
from kernels.reference.grouped_linear import centre, grouped_linear
from kernels.weights import GroupedWeight
from tests.kernels.kernel_sets import DTYPES, NATIVE_SETS, native_library_of, random

BF16, FLOAT = torch.bfloat16, torch.float32
SHAPES = [(32, 32, 32), (61, 576, 32), (96, 96, 96), (40, 256, 128), (100, 192, 64)]
"""Outputs, inputs, group: full panels and part of one, odd and even numbers of groups."""


@pytest.fixture(params=NATIVE_SETS)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    library = native_library_of(request.param)
    if not hasattr(library, "splitserve_grouped_linear"):
        pytest.skip("AVX-512 without VNNI on this machine")
    return library


def grouped(
    outputs: int, inputs: int, group: int, *, bits: int = 4, dtype: torch.dtype = BF16
) -> GroupedWeight:
    """Weights of size one, in stored groups whose zero is not in the centre."""
    generator = torch.Generator().manual_seed(outputs)
    values = torch.randint(0, 2**bits, (outputs, inputs), generator=generator, dtype=torch.uint8)
    scales = torch.rand(outputs, inputs // group, generator=generator) + 0.5
    scales = (scales * 4 / 2**bits).half().float()
    zeros = 2 ** (bits - 1) * (0.8 + 0.4 * torch.rand(scales.shape, generator=generator))
    return GroupedWeight(
        values=values, scales=scales, minimums=-scales * zeros, bits=bits, dtype=dtype
    )


def relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [2, 4, 5, 8])
@pytest.mark.parametrize(("outputs", "inputs", "group"), SHAPES)
def test_products_are_those_of_the_reference(
    outputs: int, inputs: int, group: int, bits: int, dtype: torch.dtype, library: ctypes.CDLL
) -> None:
    """Sums in another order: a few roundings of float32 of the largest partial sum."""
    weight = grouped(outputs, inputs, group, bits=bits, dtype=dtype)
    bias = random(outputs, dtype=dtype, seed=1)
    linear = NativeGroupedLinear(library, weight, bias)
    for num_rows in (0, 1, 2, 6, 7, 29, 200):
        x = random(num_rows, inputs, dtype=dtype, seed=num_rows)
        exact = grouped_linear(x, weight, bias)
        torch.testing.assert_close(linear.logits(x), exact, rtol=2e-5, atol=2e-5 * inputs**0.5)
        rounded = grouped_linear(x, weight, bias, out_dtype=dtype)
        torch.testing.assert_close(
            linear(x), rounded, rtol=1e-2 if dtype is BF16 else 2e-5, atol=2e-5 * inputs**0.5
        )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 128])
def test_rounding_the_activations_to_bytes_costs_half_a_percent(bits: int, group: int) -> None:
    """A step is the largest of 32 / 127; of Gaussian values that is an error of 0.0047 to 0.006.

    And 0.7 times that where half of the spans have none.
    """
    x = random(300, 512, dtype=FLOAT)
    weight = quantize_groups(
        random(128, 512, dtype=FLOAT, seed=1), bits=bits, group=group, dtype=FLOAT
    )
    exact = x @ weight.dequantize().T
    assert 0.003 < relative_error(grouped_linear(x, weight), exact) < 0.007


def test_an_outlier_costs_precision_only_in_its_own_span() -> None:
    weight = replace(grouped(64, 256, 32), dtype=FLOAT)
    x = random(16, 256, dtype=FLOAT)
    x[:, 7] = 1e4
    part = replace(weight, values=weight.values.clone())
    part.values[:, :32] = 8
    part = replace(part, minimums=-8 * part.scales)  # the outlier's span multiplies to zero
    exact = x @ part.dequantize().T
    assert relative_error(grouped_linear(x, part), exact) < 0.01


@pytest.mark.parametrize("num_spans", [1, 8, 18])
def test_a_share_of_the_spans_keeps_what_lies_beside_its_outliers(num_spans: int) -> None:
    """A byte's step is 0.8 beside an outlier of 100: all else in the span would be lost."""
    weight = replace(grouped(64, 32 * num_spans, 32), dtype=FLOAT)
    x = random(16, 32 * num_spans, dtype=FLOAT)
    x[:, 7] = 100.0
    if num_spans == 18:
        x[:, 100] = -100.0
    others = x * (x.abs() < 100)
    error = grouped_linear(x, weight) - x @ centre(weight).dequantize().T
    assert error.norm() / (others @ weight.dequantize().T).norm() < 0.007


@pytest.mark.parametrize("bits", [4, 8])
def test_symmetric_groups_store_no_minimums(bits: int) -> None:
    symmetric = quantize_groups(random(64, 64, dtype=FLOAT), bits=8, dtype=FLOAT)
    if bits == 4:
        symmetric = replace(
            symmetric, values=symmetric.values >> 4, minimums=symmetric.scales * -8, bits=4
        )
    assert centre(symmetric).minimums is None
    assert centre(grouped(64, 64, 32)).minimums is not None


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_scales_of_any_size_lose_nothing(size: float) -> None:
    """A float16 has no numbers of 1e-12 or 1e12; the factors of the outputs bring them back."""
    weight = quantize_groups(random(64, 64, dtype=FLOAT) * size, bits=8, dtype=FLOAT)
    torch.testing.assert_close(
        centre(weight).dequantize(), weight.dequantize(), rtol=1e-6, atol=1e-7 * size
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_has_the_same_bits_in_every_batch_and_on_every_number_of_threads(
    bits: int, dtype: torch.dtype, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, bias = grouped(100, 192, 32, bits=bits, dtype=dtype), random(100, dtype=dtype, seed=2)
    linear = NativeGroupedLinear(library, weight, bias)
    x = random(300, 192, dtype=dtype, seed=1)
    whole = linear.logits(x)
    for num_threads in (1, 2, 3):
        monkeypatch.setattr(TEAM, "num_threads", num_threads)
        for first, end in ((0, 1), (5, 10), (100, 113), (7, 299)):
            assert torch.equal(linear.logits(x[first:end]), whole[first:end])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("outputs", "inputs", "group"), SHAPES)
def test_rows_are_those_of_the_weight(
    outputs: int, inputs: int, group: int, bits: int, library: ctypes.CDLL
) -> None:
    weight = grouped(outputs, inputs, group, bits=bits, dtype=FLOAT)
    rows = NativeGroupedLinear(library, weight).rows(torch.tensor([0, outputs - 1, 31, 0]))
    stored = centre(weight).dequantize()[[0, outputs - 1, 31, 0]]
    torch.testing.assert_close(rows, stored, rtol=1e-6, atol=1e-6)
    exact = weight.dequantize()[[0, outputs - 1, 31, 0]]
    torch.testing.assert_close(rows, exact, rtol=0, atol=2e-3)  # bfloat16 minimums below 0.5


def test_rows_of_symmetric_bytes_are_exact(library: ctypes.CDLL) -> None:
    weight = quantize_groups(random(70, 64, dtype=FLOAT), bits=8, dtype=FLOAT)
    rows = NativeGroupedLinear(library, weight).rows(torch.arange(70))
    assert torch.equal(rows, weight.dequantize())


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("value", [0, 8, 15])
def test_the_largest_sums_of_four_bits_do_not_meet_in_their_word(
    value: int, sign: float, library: ctypes.CDLL
) -> None:
    """32 products of -8 and 127 are 256 short of what 16 bits hold."""
    weight = grouped(64, 96, 32, dtype=FLOAT)
    weight = replace(weight, values=torch.full_like(weight.values, value))
    x = torch.full((7, 96), sign)
    exact = x @ weight.dequantize().T
    torch.testing.assert_close(NativeGroupedLinear(library, weight)(x), exact, rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("value", [0, 127, 128, 255])
def test_the_largest_pairs_of_eight_bits_fit_sixteen(
    value: int, sign: float, library: ctypes.CDLL
) -> None:
    """Two products of -128 and 127 are 256 short of what 16 bits hold; beside them the others'."""
    weight = grouped(64, 96, 32, bits=8, dtype=FLOAT)
    values = torch.full_like(weight.values, value)
    values[1::2, 1::2] = 255 - value
    weight = replace(weight, values=values)
    x = torch.full((7, 96), sign)
    x[1::2, 1::2] = -sign
    linear, exact = NativeGroupedLinear(library, weight), grouped_linear(x, weight)
    for found in (linear(x), linear.logits(x)):
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=5e-3)


def test_no_activation_gives_no_output(library: ctypes.CDLL) -> None:
    weight, bias = grouped(32, 64, 32), random(32, dtype=BF16)
    x = torch.zeros(2, 64, dtype=BF16)
    x[1] = 1e-35  # below what a scale can be made of
    assert torch.equal(NativeGroupedLinear(library, weight, bias)(x), bias.expand(2, 32))


@pytest.mark.parametrize("bits", [4, 8])
def test_a_nan_stays_in_its_row_and_is_not_hidden(bits: int, library: ctypes.CDLL) -> None:
    linear = NativeGroupedLinear(library, grouped(32, 64, 32, bits=bits))
    x = random(3, 64, dtype=BF16)
    clean = linear(x)
    x[1, 40] = torch.nan
    found = linear(x)
    assert found[1].isnan().all()
    assert torch.equal(found[::2], clean[::2])


def test_four_bits_take_half_a_byte_and_their_scales_two(library: ctypes.CDLL) -> None:
    outputs, inputs = 64, 128
    weight = grouped(outputs, inputs, 32)
    held = outputs * (inputs // 2 + inputs // 32 * (2 + 2) + 4)  # minimums, and an output's factor
    assert NativeGroupedLinear(library, weight).num_bytes == held


@pytest.mark.parametrize(
    "weight",
    [
        grouped(32, 64, 16),
        replace(grouped(32, 64, 32), dtype=torch.float16),
    ],
)
def test_groups_that_the_kernel_does_not_take_are_refused(
    weight: GroupedWeight, library: ctypes.CDLL
) -> None:
    with pytest.raises(ValueError, match="64 inputs in groups of (16|32) for torch"):
        NativeGroupedLinear(library, weight)


def test_what_has_no_layout_is_dequantized(library: ctypes.CDLL) -> None:
    assert isinstance(pack_native_linear(library, grouped(32, 64, 32)), NativeGroupedLinear)
    assert isinstance(pack_native_linear(library, random(32, 64, dtype=BF16)), PackedLinear)
    narrow = grouped(32, 64, 16)
    packed = pack_native_linear(library, narrow)
    assert isinstance(packed, PackedLinear)
    assert torch.equal(packed.rows(torch.arange(32)), narrow.dequantize().float())


def test_a_cpu_that_does_not_multiply_bytes_dequantizes(library: ctypes.CDLL) -> None:
    without_the_function = ctypes.CDLL(None)
    packed = pack_native_linear(without_the_function, grouped(32, 64, 32))
    assert isinstance(packed, PackedLinear)


@pytest.mark.parametrize(
    ("x", "problem"),
    [
        (torch.ones(2, 63), r"x has shape \(2, 63\); needed: \(2, 64\)"),
        (torch.ones(2, 64), "x is torch.float32; needed: torch.bfloat16"),
        (torch.ones(64, 2).bfloat16().T, "needed: contiguous"),
    ],
)
def test_a_wrong_input_is_refused(x: torch.Tensor, problem: str, library: ctypes.CDLL) -> None:
    with pytest.raises(ValueError, match=problem):
        NativeGroupedLinear(library, grouped(32, 64, 32))(x)
