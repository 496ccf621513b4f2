"""Matrices quantized to low-bit groups on load."""

from __future__ import annotations

import pytest
import torch

from kernels.quantize import quantize_groups


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 96])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_value_moves_by_at_most_half_of_a_step(bits: int, group: int, dtype: torch.dtype) -> None:
    weight = torch.randn(5000, 96, generator=torch.Generator().manual_seed(bits)).to(dtype)
    weight[7] += 3  # groups without a zero in them
    quantized = quantize_groups(weight, bits=bits, group=group, dtype=torch.float32)
    assert (quantized.bits, quantized.group) == (bits, group)
    assert int(quantized.values.max()) == 2**bits - 1
    exact = weight.float().view(5000, -1, group)
    step = (exact.amax(-1) - exact.amin(-1)) / (2**bits - 1)
    moved = (quantized.dequantize().view(5000, -1, group) - exact).abs().amax(-1)
    assert bool((moved <= 0.5 * step + 1e-6).all())  # and the rounding of float32


def test_a_constant_group_is_exact() -> None:
    weight = torch.full((3, 64), -0.7)
    quantized = quantize_groups(weight, bits=4, group=32, dtype=torch.float32)
    assert torch.equal(quantized.dequantize(), weight)


def test_the_activations_dtype_is_that_of_the_dequantized_matrix() -> None:
    quantized = quantize_groups(torch.ones(2, 32), bits=4, group=32, dtype=torch.bfloat16)
    assert quantized.dequantize().dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("shape", "bits", "group", "says"),
    [
        ((4,), 4, 32, "1 dimensions"),
        ((4, 96), 9, 32, "9 bits"),
        ((4, 96), 4, 64, "96 inputs in groups of 64"),
        ((4, 96), 4, 0, "groups of 0"),
    ],
)
def test_what_cannot_be_quantized_is_refused(
    shape: tuple[int, ...], bits: int, group: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        quantize_groups(torch.ones(shape), bits=bits, group=group, dtype=torch.float32)
