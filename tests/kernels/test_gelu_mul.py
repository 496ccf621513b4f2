"""gelu_mul against the reference, which is torch's own formula."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.dispatch import REFERENCE
from tests.kernels.kernel_sets import CPU_SETS, DTYPES, cpu_set, random, tolerance


@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "inner"), [(0, 8), (1, 1536), (9, 24), (33, 7)])
def test_gelu_mul_is_torchs_gelu_by_tanh_times_up(
    num_tokens: int, inner: int, dtype: torch.dtype, name: str
) -> None:
    gate_up = random(num_tokens, 2 * inner, dtype=dtype) * 3
    gate, up = gate_up.float().chunk(2, dim=1)
    expected = (F.gelu(gate, approximate="tanh") * up).to(dtype)
    torch.testing.assert_close(cpu_set(name).gelu_mul(gate_up), expected, **tolerance(dtype))


def test_extreme_gates_saturate() -> None:
    gate = torch.tensor([-1e4, -100.0, -10.0, -5.0, 0.0, 5.0, 10.0, 1e4, float("nan")])
    gate_up = torch.cat((gate, torch.ones(9)))[None]
    ours, expected = cpu_set("avx512").gelu_mul(gate_up), REFERENCE.gelu_mul(gate_up)
    # Far to the left torch's 1 + tanh cancels to 0; what is left of it here is below 1e-6.
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", CPU_SETS)
def test_an_odd_width_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="odd width 7"):
        cpu_set(name).gelu_mul(torch.zeros(2, 7))
