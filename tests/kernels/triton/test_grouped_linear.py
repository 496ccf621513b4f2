"""Products with low-bit weights against the dequantized matrix."""

from __future__ import annotations

import pytest
import torch

from kernels.triton import grouped_linear
from kernels.triton.grouped_linear import TritonGroupedLinear
from kernels.triton.pack_linear import pack_linear
from kernels.weights import GroupedWeight
from tests.kernels.kernel_sets import random
from tests.kernels.triton_places import PLACES, Place


def grouped(
    out_features: int, in_features: int, group: int, bits: int, place: Place
) -> GroupedWeight:
    """Rows of very different sizes; minimums that are no multiples of scales."""
    device, dtype = place
    generator = torch.Generator().manual_seed(1)
    shape = (out_features, in_features // group)
    sizes = torch.logspace(-4, 0, out_features)[:, None] / in_features**0.5 / 2**bits
    scales = sizes * (0.5 + torch.rand(shape, generator=generator))
    values = torch.randint(0, 2**bits, (out_features, in_features), generator=generator)
    minimums = -scales * (2**bits) * torch.rand(shape, generator=generator)
    return GroupedWeight(
        values=values.to(torch.uint8).to(device),
        scales=scales.to(device),
        minimums=minimums.to(device),
        bits=bits,
        dtype=dtype,
    )


def assert_close(ours: torch.Tensor, exact: torch.Tensor, sizes: torch.Tensor) -> None:
    """`sizes` is what the terms of each sum come to without their signs: scales and minimums have
    11 bits, and both are larger than the weight that they make."""
    assert ((ours.double() - exact).abs() <= 2e-3 * sizes + 1e-6).all()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("out_features", "in_features", "group", "bits"),
    [(70, 512, 32, 4), (64, 768, 128, 4), (33, 192, 64, 8), (48, 288, 96, 8), (96, 256, 256, 4)],
)
def test_products_are_those_of_the_dequantized_weight(
    out_features: int, in_features: int, group: int, bits: int, place: Place
) -> None:
    device, dtype = place
    weight = grouped(out_features, in_features, group, bits, place)
    bias = random(out_features, dtype=dtype, seed=3).to(device) * 0.01
    linear = TritonGroupedLinear(weight, bias)
    plain = (
        weight.values.view(out_features, -1, group).double() * weight.scales[..., None].double()
        + weight.minimums[..., None].double()
    ).view(out_features, in_features)
    for num_rows in (0, 1, 17, 70):
        x = random(num_rows, in_features, dtype=dtype, seed=num_rows).to(device)
        exact = x.double() @ plain.T + bias.double()
        ours, logits = linear(x), linear.logits(x)
        assert (ours.dtype, logits.dtype) == (dtype, torch.float32)
        sizes = x.double().abs() @ plain.abs().T + bias.double().abs()
        assert_close(ours, exact, sizes)
        assert_close(logits, exact, sizes)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bits", [3, 4, 8])
def test_rows_are_those_of_the_weight(bits: int, place: Place) -> None:
    device, dtype = place
    weight = grouped(40, 128, 32, bits, place)
    ids = torch.tensor([0, 39, 7, 7], device=device)
    rows = TritonGroupedLinear(weight).rows(ids)
    assert rows.dtype == torch.float32
    expected = weight.dequantize().float()[ids]
    torch.testing.assert_close(rows, expected, rtol=4e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bits", [4, 8])
def test_many_rows_go_through_a_copy_of_the_weight(
    bits: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, dtype = place
    linear = TritonGroupedLinear(grouped(70, 256, 64, bits, place))
    x = random(24, 256, dtype=dtype).to(device)
    in_tiles = linear(x)
    monkeypatch.setattr(grouped_linear, "DEQUANTIZE_ROWS", 20)
    assert_close(linear(x), in_tiles.double(), in_tiles.double().abs().amax(0))


@pytest.mark.parametrize("place", PLACES)
def test_a_row_of_few_has_the_same_bits_beside_others(place: Place) -> None:
    device, dtype = place
    linear = TritonGroupedLinear(grouped(64, 512, 32, 4, place))
    x = random(16, 512, dtype=dtype).to(device)
    assert torch.equal(linear(x)[3:4], linear(x[3:4]))


def test_four_bits_take_half_a_byte_and_the_scales() -> None:
    linear = TritonGroupedLinear(grouped(256, 1024, 64, 4, ("cpu", torch.float32)))
    assert linear.num_bytes == 256 * 1024 // 2 + 2 * 2 * 256 * 1024 // 64 + 4 * 256


def test_what_does_not_fit_is_refused() -> None:
    linear = TritonGroupedLinear(grouped(64, 64, 32, 4, ("cpu", torch.float32)))
    with pytest.raises(ValueError, match=r"x has shape \(2, 60\); needed: \(2, 64\)"):
        linear(torch.zeros(2, 60))
    with pytest.raises(ValueError, match="x is torch.float16; needed: torch.float32"):
        linear(torch.zeros(2, 64).half())
    with pytest.raises(ValueError, match="groups of 16 inputs; needed: a multiple of 32"):
        TritonGroupedLinear(grouped(64, 64, 16, 4, ("cpu", torch.float32)))


@pytest.mark.parametrize("place", PLACES)
def test_groups_of_sixteen_are_put_together_and_odd_ones_dequantized(place: Place) -> None:
    device, dtype = place
    for in_features, group, kept in ((128, 16, True), (120, 24, False)):
        weight = grouped(40, in_features, group, 6, place)
        linear = pack_linear(weight)
        assert isinstance(linear, TritonGroupedLinear) is kept
        x = random(3, in_features, dtype=dtype).to(device)
        plain = weight.dequantize().double()
        # A step of the wider groups is 1/255 of their range, and values move by half of one.
        sizes = x.double().abs() @ plain.abs().amax(1, keepdim=True).expand_as(plain).T
        assert ((linear(x).double() - x.double() @ plain.T).abs() <= 4e-3 * sizes + 1e-6).all()
