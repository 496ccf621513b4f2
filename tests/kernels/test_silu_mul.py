"""silu_mul against the reference."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch import REFERENCE
from tests.kernels.kernel_sets import DTYPES, cpu_set, random, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "inner"), [(0, 8), (1, 1536), (9, 24), (33, 7)])
def test_avx512_silu_mul_is_that_of_the_reference(
    num_tokens: int, inner: int, dtype: torch.dtype
) -> None:
    gate_up = random(num_tokens, 2 * inner, dtype=dtype) * 3
    ours = cpu_set("avx512").silu_mul(gate_up)
    torch.testing.assert_close(ours, REFERENCE.silu_mul(gate_up), **tolerance(dtype))


def test_extreme_gates_saturate() -> None:
    gate = torch.tensor([-1e4, -100.0, -88.0, 0.0, 88.0, 100.0, 1e4, float("nan")])
    gate_up = torch.cat((gate, torch.ones(8)))[None]
    ours = cpu_set("avx512").silu_mul(gate_up)
    expected = REFERENCE.silu_mul(gate_up)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("num_tokens", "inner"), [(0, 8), (2, 24), (1, 1100)])
def test_triton_silu_mul_is_that_of_the_reference(
    num_tokens: int, inner: int, place: Place
) -> None:
    device, dtype = place
    gate_up = random(num_tokens, 2 * inner, dtype=dtype).to(device)
    ours = triton_kernels().silu_mul(gate_up)
    torch.testing.assert_close(ours, REFERENCE.silu_mul(gate_up), **tolerance(dtype))
