"""Products of 8-bit floats against the dequantized weight and the quantized activations."""

from __future__ import annotations

import pytest
import torch

from kernels.fp8 import quantize_fp8
from kernels.triton.fp8_linear import BLOCK, Fp8Linear, has_fp8_form
from kernels.triton.gpu import multiplies_fp8
from kernels.triton.quantize_rows import quantize_rows
from kernels.weights import Fp8Weight
from tests.kernels.kernel_sets import random
from tests.kernels.triton_places import PLACES, Place


def in_blocks(out_features: int, in_features: int, dtype: torch.dtype, device: str) -> Fp8Weight:
    values = random(out_features, in_features, dtype=torch.float32, seed=4) * 60
    generator = torch.Generator().manual_seed(5)
    shape = (-(-out_features // BLOCK), in_features // BLOCK)
    return Fp8Weight(
        values=values.to(torch.float8_e4m3fn).to(device),
        scales=(torch.rand(shape, generator=generator) * 1e-3 + 1e-4).to(device),
        block=(BLOCK, BLOCK),
        dtype=dtype,
    )


def exact_weight(weight: Fp8Weight) -> torch.Tensor:
    spread = weight.scales.repeat_interleave(weight.block[0], 0)[: weight.shape[0]]
    spread = spread.repeat_interleave(weight.block[1], 1)[:, : weight.shape[1]]
    return weight.values.double() * spread.double()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("width", "group"), [(256, 128), (3000, 3000), (48, 48)])
def test_a_quantized_row_is_within_a_sixteenth_of_each_value(
    width: int, group: int, place: Place
) -> None:
    device, dtype = place
    x = random(5, width, dtype=dtype).to(device) * 3
    x[3] = 0.0
    values, scales = quantize_rows(x, group)
    assert values.dtype == torch.float8_e4m3fn
    back = values.float() * scales.repeat_interleave(group, 1)
    smallest = scales.repeat_interleave(group, 1) * 2.0**-9
    assert ((back - x.float()).abs() <= x.float().abs() / 16 + smallest).all()
    largest = x.float().view(5, -1, group).abs().amax(-1)
    torch.testing.assert_close((scales * 448)[largest > 0], largest[largest > 0])
    assert (back[3] == 0).all()


@pytest.mark.parametrize("place", PLACES)
def test_values_are_rounded_as_torch_rounds_them(place: Place) -> None:
    device, dtype = place
    x = (random(4, 256, dtype=dtype) * 30).clamp(-448, 448).to(device)
    values, _ = quantize_rows(x, 256, 1.0)
    expected = x.float().to(torch.float8_e4m3fn)
    assert torch.equal(values.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("place", PLACES)
def test_a_static_scale_clips_what_is_beyond_it(place: Place) -> None:
    device, dtype = place
    x = torch.tensor([[1.0, -2.0, 500.0, -600.0] * 4], dtype=dtype, device=device)
    values, scales = quantize_rows(x, 16, 0.5)
    assert (values.float() * scales)[0, :4].tolist() == [1.0, -2.0, 224.0, -224.0]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("out_features", "in_features", "num_rows"), [(24, 1024, 3), (140, 128, 18), (24, 128, 70)]
)
def test_products_of_blocks_are_exact_in_what_was_quantized(
    out_features: int, in_features: int, num_rows: int, place: Place
) -> None:
    device, dtype = place
    weight = in_blocks(out_features, in_features, dtype, device)
    bias = random(out_features, dtype=dtype, seed=2).to(device)
    linear = Fp8Linear(weight, bias)
    x = random(num_rows, in_features, dtype=dtype, seed=num_rows).to(device)
    values, scales = quantize_rows(x, BLOCK)
    rows = values.double() * scales.double().repeat_interleave(BLOCK, 1)
    exact = rows @ exact_weight(weight).T + bias.double()
    torch.testing.assert_close(linear(x), exact.to(dtype), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(linear.logits(x), exact.float(), rtol=2e-4, atol=2e-4)
    assert linear(x[:0]).shape == (0, out_features)


@pytest.mark.parametrize("place", PLACES)
def test_rows_are_those_of_the_weight(place: Place) -> None:
    device, dtype = place
    ids = torch.tensor([0, 150, 7], device=device)
    weight = in_blocks(160, 256, dtype, device)
    torch.testing.assert_close(Fp8Linear(weight).rows(ids), exact_weight(weight)[ids].float())
    by_output = quantize_fp8(random(160, 256, dtype=torch.float32).to(device), dtype=dtype)
    torch.testing.assert_close(Fp8Linear(by_output).rows(ids), exact_weight(by_output)[ids].float())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch multiplies 8-bit floats on CUDA")
@pytest.mark.parametrize("num_rows", [1, 17, 300])
def test_products_with_a_scale_per_output_are_exact_in_what_was_quantized(num_rows: int) -> None:
    plain = random(96, 256, dtype=torch.float32).cuda()
    weight = quantize_fp8(plain, dtype=torch.bfloat16)
    x = random(num_rows, 256, dtype=torch.bfloat16, seed=1).cuda()
    values, scales = quantize_rows(x, 256)
    exact = (values.double() * scales.double()) @ exact_weight(weight).T
    torch.testing.assert_close(Fp8Linear(weight)(x).double(), exact, rtol=1e-2, atol=2e-1)


def test_other_blocks_and_sizes_have_no_form() -> None:
    odd = quantize_fp8(torch.randn(96, 72), dtype=torch.float32)
    assert not has_fp8_form(odd)
    with pytest.raises(ValueError, match=r"a weight of \(96, 72\) with scales for blocks of"):
        Fp8Linear(odd)
    assert not multiplies_fp8(torch.device("cpu"))
