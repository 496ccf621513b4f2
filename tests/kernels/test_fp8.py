"""Matrices quantized to 8-bit floats on load."""

from __future__ import annotations

import pytest
import torch

from kernels.fp8 import E4M3_MAX, quantize_fp8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_value_moves_by_at_most_what_three_bits_of_mantissa_allow(dtype: torch.dtype) -> None:
    weight = torch.randn(32, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    weight[3] *= 1e-4
    weight[7] = 0
    quantized = quantize_fp8(weight, dtype=dtype)
    assert (quantized.block, quantized.dtype, quantized.input_scale) == ((1, 100), dtype, None)
    exact = weight.float()
    moved = (quantized.values.float() * quantized.scales - exact).abs()
    allowed = torch.maximum(exact.abs() / 16, quantized.scales * 2**-10)
    assert bool((moved <= allowed * 1.0001).all())  # and the rounding of float32
    assert bool((quantized.values.float().abs().amax(1) <= E4M3_MAX).all())


def test_a_row_of_zeros_stays_zero() -> None:
    quantized = quantize_fp8(torch.zeros(2, 8), dtype=torch.float32)
    assert torch.equal(quantized.dequantize(), torch.zeros(2, 8))
    assert torch.equal(quantized.scales, torch.ones(2, 1))
