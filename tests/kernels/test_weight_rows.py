"""Weights by rows: what is put together, permuted or moved stands for the same numbers."""

from __future__ import annotations

import pytest
import torch

from kernels.weight_rows import concat_rows, moved, take_rows, with_groups_of
from kernels.weights import Fp8Weight, GroupedWeight, Weight, plain

INPUTS = 96


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + shape[0]))


def grouped(outputs: int, group: int, bits: int) -> GroupedWeight:
    generator = torch.Generator().manual_seed(outputs)
    values = torch.randint(0, 2**bits, (outputs, INPUTS), generator=generator, dtype=torch.uint8)
    return GroupedWeight(
        values=values,
        scales=_random(outputs, INPUTS // group),
        minimums=_random(outputs, INPUTS // group, seed=1),
        bits=bits,
        dtype=torch.float32,
    )


def fp8(
    outputs: int, block: tuple[int, int], *, inputs: int = INPUTS, input_scale: float | None = None
) -> Fp8Weight:
    grid = (-(-outputs // block[0]), -(-inputs // block[1]))
    return Fp8Weight(
        values=_random(outputs, inputs).to(torch.float8_e4m3fn),
        scales=_random(*grid).abs(),
        block=block,
        dtype=torch.float32,
        input_scale=input_scale,
    )


TOGETHER: dict[str, tuple[list[Weight], type]] = {
    "plain": ([_random(5, INPUTS), _random(7, INPUTS)], torch.Tensor),
    "equal groups": ([grouped(5, 32, 4), grouped(7, 32, 4)], GroupedWeight),
    "other groups and bits": ([grouped(5, 96, 8), grouped(7, 16, 6)], GroupedWeight),
    "groups without a common one": ([grouped(5, 32, 4), grouped(6, 48, 4)], GroupedWeight),
    "one scale each": ([fp8(5, (5, INPUTS)), fp8(7, (7, INPUTS))], Fp8Weight),
    "a scale per output": ([fp8(5, (1, INPUTS)), fp8(7, (1, INPUTS))], Fp8Weight),
    "blocks that meet": ([fp8(8, (4, 32)), fp8(7, (4, 32))], Fp8Weight),
    "blocks that do not meet": ([fp8(7, (4, 32)), fp8(8, (4, 32))], Fp8Weight),
    "unlike columns": ([fp8(8, (4, 32)), fp8(8, (4, 48))], torch.Tensor),
    "unlike kinds": ([_random(5, INPUTS), grouped(7, 32, 4), fp8(3, (1, 96))], torch.Tensor),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_parts_put_together_are_the_parts_below_each_other(case: str) -> None:
    parts, kind = TOGETHER[case]
    together = concat_rows(parts)
    assert isinstance(together, kind)
    assert torch.equal(plain(together), torch.cat([plain(part) for part in parts]))


def test_as_many_scales_for_unlike_columns_are_not_taken_for_the_same() -> None:
    parts: list[Weight] = [fp8(8, (4, 40)), fp8(8, (4, 36))]
    assert {part.scales.shape for part in parts if isinstance(part, Fp8Weight)} == {(2, 3)}
    assert torch.equal(plain(concat_rows(parts)), torch.cat([plain(part) for part in parts]))


def test_blocks_that_meet_keep_their_size() -> None:
    together = concat_rows([fp8(8, (4, 32)), fp8(7, (4, 32))])
    assert isinstance(together, Fp8Weight)
    assert together.block == (4, 32)
    assert together.scales.shape == (4, 3)


@pytest.mark.parametrize(
    ("scales", "common"), [((0.5, 0.25), 0.5), ((0.5, None), None), ((None, None), None)]
)
def test_the_activations_of_fused_parts_have_the_largest_scale(
    scales: tuple[float | None, float | None], common: float | None
) -> None:
    together = concat_rows([fp8(5, (1, INPUTS), input_scale=scale) for scale in scales])
    assert isinstance(together, Fp8Weight)
    assert together.input_scale == common


def test_nothing_is_put_together_of_nothing() -> None:
    with pytest.raises(ValueError, match="no weights"):
        concat_rows([])


@pytest.mark.parametrize(
    "weight", [_random(8, INPUTS), grouped(8, 32, 4), fp8(8, (4, 32)), fp8(8, (8, INPUTS))]
)
def test_rows_are_taken_in_the_order_that_is_asked_for(weight: Weight) -> None:
    rows = torch.tensor([7, 0, 3, 3])
    assert torch.equal(plain(take_rows(weight, rows)), plain(weight)[rows])


@pytest.mark.parametrize("weight", [_random(8, INPUTS), grouped(8, 32, 4), fp8(8, (4, 32))])
def test_what_is_moved_is_for_activations_of_the_new_dtype(weight: Weight) -> None:
    there = moved(weight, torch.device("cpu"), torch.bfloat16)
    assert type(there) is type(weight)
    assert torch.equal(plain(there), plain(weight).bfloat16())


def test_groups_are_not_split_unevenly() -> None:
    with pytest.raises(ValueError, match="groups of 32 cannot be split into 24"):
        with_groups_of(grouped(4, 32, 4), 24)
