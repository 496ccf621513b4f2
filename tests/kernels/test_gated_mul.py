"""The gate of a feed-forward against the reference, which is torch's own formulas."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.gated_mul import GateActivation
from tests.kernels.kernel_sets import CPU_SETS, DTYPES, cpu_set, random, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

SHAPES = [(0, 8), (1, 1536), (9, 24), (33, 7)]
SMALL_SHAPES = [(0, 8), (2, 24), (1, 1100)]
NAN = float("nan")
EXTREMES = {
    GateActivation.SILU: ([-3e38, -1e4, -100.0, -88.0, 0.0, 88.0, 100.0, 1e4, 3e38, NAN], 1e-30),
    # Far to the left torch's 1 + tanh cancels to 0; what is left of it here is below 1e-6.
    GateActivation.GELU_TANH: (
        [-3e38, -1e14, -1e4, -100.0, -10.0, -5.0, 0.0, 5.0, 10.0, 1e4, 1e14, 3e38, NAN],
        2e-6,
    ),
}


@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "inner"), SHAPES)
@pytest.mark.parametrize("activation", GateActivation)
def test_a_gate_is_torchs_activation_times_up(
    activation: GateActivation, num_tokens: int, inner: int, dtype: torch.dtype, name: str
) -> None:
    gate_up = random(num_tokens, 2 * inner, dtype=dtype) * 3
    gate, up = gate_up.float().chunk(2, dim=1)
    is_silu = activation is GateActivation.SILU
    opened = F.silu(gate) if is_silu else F.gelu(gate, approximate="tanh")
    ours = cpu_set(name).gated_mul(gate_up, activation)
    torch.testing.assert_close(ours, (opened * up).to(dtype), **tolerance(dtype))


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("activation", GateActivation)
def test_extreme_gates_saturate(activation: GateActivation) -> None:
    values, atol = EXTREMES[activation]
    gate_up = torch.cat((torch.tensor(values), torch.ones(len(values))))[None]
    ours = cpu_set("native").gated_mul(gate_up, activation)
    expected = REFERENCE.gated_mul(gate_up, activation)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("name", CPU_SETS)
def test_an_odd_width_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="odd width 7"):
        cpu_set(name).gated_mul(torch.zeros(2, 7), GateActivation.SILU)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("num_tokens", "inner"), SMALL_SHAPES)
@pytest.mark.parametrize("activation", GateActivation)
def test_tritons_gate_is_that_of_the_reference(
    activation: GateActivation, num_tokens: int, inner: int, place: Place
) -> None:
    device, dtype = place
    gate_up = (random(num_tokens, 2 * inner, dtype=dtype) * 3).to(device)
    ours = triton_kernels().gated_mul(gate_up, activation)
    torch.testing.assert_close(ours, REFERENCE.gated_mul(gate_up, activation), **tolerance(dtype))


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # numpy's, in the interpreter
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("activation", GateActivation)
def test_tritons_gates_saturate(activation: GateActivation, place: Place) -> None:
    device, dtype = place
    gate = torch.tensor([-6e4, -100.0, -30.0, 0.0, 30.0, 100.0, 6e4, NAN])
    gate_up = torch.cat((gate, torch.ones(8)))[None].to(dtype).to(device)
    ours = triton_kernels().gated_mul(gate_up, activation)
    expected = REFERENCE.gated_mul(gate_up, activation)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=2e-2, atol=1e-6)
