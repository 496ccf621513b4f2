"""Packed matrices against x @ weight.T + bias."""

from __future__ import annotations

import pytest
import torch

from kernels.cpu.packed_linear import pack
from kernels.linear import Linear
from tests.kernels.kernel_sets import DTYPES, NATIVE_SETS, cpu_set, random, tolerance

SETS = ["reference", *NATIVE_SETS]


def packed(name: str, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    return cpu_set(name).pack_linear(weight, bias)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("out_features", "in_features"), [(32, 16), (61, 64), (96, 31), (40, 576)])
def test_products_are_those_of_float64(
    out_features: int, in_features: int, with_bias: bool, name: str, dtype: torch.dtype
) -> None:
    weight = random(out_features, in_features, dtype=dtype) * in_features**-0.5
    bias = random(out_features, dtype=dtype, seed=1) if with_bias else None
    linear = packed(name, weight, bias)
    for num_rows in (0, 1, 2, 12, 13, 29, 400):
        x = random(num_rows, in_features, dtype=dtype, seed=num_rows)
        exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
        torch.testing.assert_close(linear(x), exact.to(dtype), **tolerance(dtype))
        assert linear.logits(x).dtype == torch.float32
        torch.testing.assert_close(linear.logits(x), exact.float(), **tolerance(dtype))


@pytest.mark.usefixtures("every_level")
def test_native_logits_are_not_rounded_to_bfloat16() -> None:
    weight = random(64, 128, dtype=torch.bfloat16)
    x = random(3, 128, dtype=torch.bfloat16, seed=1)
    exact = (x.double() @ weight.double().T).float()
    torch.testing.assert_close(packed("native", weight).logits(x), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
def test_native_kernels_give_a_row_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    linear = packed("native", random(96, 64, dtype=dtype))
    x = random(300, 64, dtype=dtype, seed=1)
    whole = linear(x)
    for first, end in ((0, 1), (5, 12), (100, 113), (7, 299)):
        assert torch.equal(linear(x[first:end]), whole[first:end])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("in_features", [31, 48])
def test_rows_are_those_of_the_weight(in_features: int, name: str, dtype: torch.dtype) -> None:
    weight = random(61, in_features, dtype=dtype)
    ids = torch.tensor([0, 60, 31, 32, 31])
    assert torch.equal(packed(name, weight).rows(ids), weight[ids].float())


def test_packing_costs_no_memory_when_panels_are_full() -> None:
    weight = random(96, 64, dtype=torch.bfloat16)
    assert pack(weight).nbytes == weight.nbytes


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize(
    ("x", "problem"),
    [
        (torch.ones(2, 15), r"x has shape \(2, 15\); needed: \(2, 16\)"),
        (torch.ones(2, 16).bfloat16(), "x is torch.bfloat16; needed: torch.float32"),
        (torch.ones(16, 2).T, "needed: contiguous"),
    ],
)
def test_a_wrong_input_is_refused(x: torch.Tensor, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        packed("native", torch.ones(32, 16))(x)
