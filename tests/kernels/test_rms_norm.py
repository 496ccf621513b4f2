"""rms_norm and add_rms_norm against the reference."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch import REFERENCE
from tests.kernels.kernel_sets import DTYPES, cpu_set, random, tolerance

EPS = 1e-5


def test_the_reference_is_the_norm_of_torch() -> None:
    x, weight = random(5, 40, dtype=torch.float32), random(40, dtype=torch.float32, seed=1)
    expected = torch.nn.functional.rms_norm(x, (40,), weight, EPS)
    torch.testing.assert_close(REFERENCE.rms_norm(x, weight, EPS, torch.float32), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "hidden"), [(0, 16), (1, 576), (3, 40), (50, 64)])
def test_avx512_norms_are_those_of_the_reference(
    num_tokens: int, hidden: int, dtype: torch.dtype
) -> None:
    kernels = cpu_set("avx512")
    residual = random(num_tokens, hidden, dtype=torch.float32)
    branch = random(num_tokens, hidden, dtype=dtype, seed=2)
    weight = random(hidden, dtype=torch.float32, seed=3)
    expected = REFERENCE.rms_norm(residual, weight, EPS, dtype)
    close = tolerance(dtype)
    torch.testing.assert_close(kernels.rms_norm(residual, weight, EPS, dtype), expected, **close)
    ours, theirs = residual.clone(), residual.clone()
    expected = REFERENCE.add_rms_norm(branch, theirs, weight, EPS)
    torch.testing.assert_close(kernels.add_rms_norm(branch, ours, weight, EPS), expected, **close)
    assert torch.equal(ours, theirs)


def test_a_residual_of_another_shape_is_refused() -> None:
    kernels = cpu_set("avx512")
    branch, residual = random(2, 16, dtype=torch.float32), random(3, 16, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"branch has shape \(2, 16\); needed: \(3, 16\)"):
        kernels.add_rms_norm(branch, residual, torch.ones(16), EPS)
