"""rms_norm and add_rms_norm against the reference."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from tests.kernels.kernel_sets import DTYPES, cpu_set, random, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

EPS = 1e-5


def test_the_reference_is_the_norm_of_torch() -> None:
    x, weight = random(5, 40, dtype=torch.float32), random(40, dtype=torch.float32, seed=1)
    expected = torch.nn.functional.rms_norm(x, (40,), weight, EPS)
    torch.testing.assert_close(REFERENCE.rms_norm(x, weight, EPS, torch.float32), expected)


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "hidden"), [(0, 16), (1, 576), (3, 40), (50, 64)])
def test_native_norms_are_those_of_the_reference(
    num_tokens: int, hidden: int, dtype: torch.dtype
) -> None:
    kernels = cpu_set("native")
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


@pytest.mark.usefixtures("every_level")
def test_a_residual_of_another_shape_is_refused() -> None:
    kernels = cpu_set("native")
    branch, residual = random(2, 16, dtype=torch.float32), random(3, 16, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"branch has shape \(2, 16\); needed: \(3, 16\)"):
        kernels.add_rms_norm(branch, residual, torch.ones(16), EPS)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("num_tokens", "hidden"), [(0, 16), (3, 40)])
def test_triton_norms_are_those_of_the_reference(
    num_tokens: int, hidden: int, place: Place
) -> None:
    device, dtype = place
    residual = random(num_tokens, hidden, dtype=torch.float32).to(device)
    branch = random(num_tokens, hidden, dtype=dtype, seed=2).to(device)
    weight = random(hidden, dtype=torch.float32, seed=3).to(device)
    ours, theirs = residual.clone(), residual.clone()
    torch.testing.assert_close(
        triton_kernels().rms_norm(residual, weight, EPS, dtype),
        REFERENCE.rms_norm(residual, weight, EPS, dtype),
        **tolerance(dtype),
    )
    torch.testing.assert_close(
        triton_kernels().add_rms_norm(branch, ours, weight, EPS),
        REFERENCE.add_rms_norm(branch, theirs, weight, EPS),
        **tolerance(dtype),
    )
    torch.testing.assert_close(ours, theirs)
