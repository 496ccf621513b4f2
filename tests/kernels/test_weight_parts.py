"""Parts of weights stand for the same values as the whole, to the bit."""

from __future__ import annotations

import pytest
import torch

from kernels.fp8 import quantize_fp8
from kernels.quantize import quantize_groups
from kernels.reference.embed_part import embed_part
from kernels.reference.linear import TorchLinear
from kernels.weight_parts import block_part, take_columns, with_height
from kernels.weights import Fp8Weight, GroupedWeight, Weight, plain
from tests.kernels.kernel_sets import random


def grouped(group: int) -> GroupedWeight:
    matrix = random(8, 192, dtype=torch.float32)
    return quantize_groups(matrix, bits=4, group=group, dtype=torch.float32)


def in_blocks(rows: int, columns: int) -> Fp8Weight:
    values = random(40, 96, dtype=torch.float32).to(torch.float8_e4m3fn)
    grid = (-(-40 // rows), -(-96 // columns))
    scales = random(*grid, dtype=torch.float32, seed=1).abs()
    return Fp8Weight(values=values, scales=scales, block=(rows, columns), dtype=torch.float32)


@pytest.mark.parametrize(
    ("group", "columns", "left"),
    [
        (32, range(64, 128), 32),
        (64, range(0, 96), 32),
        (96, range(96, 192), 96),
        (64, range(48, 192), 16),
        (192, range(32, 64), 32),
        (32, range(0, 192), 32),
    ],
)
def test_columns_of_groups_are_exact_and_a_cut_group_is_split(
    group: int, columns: range, left: int
) -> None:
    weight = grouped(group)
    part = take_columns(weight, columns)
    assert part.group == left
    expected = weight.dequantize()[:, columns.start : columns.stop]
    assert torch.equal(part.dequantize(), expected)


@pytest.mark.parametrize("block", [(16, 32), (1, 96), (40, 96), (16, 96), (40, 32)])
@pytest.mark.parametrize("rows", [range(0, 40), range(16, 40), range(8, 30), range(17, 31)])
@pytest.mark.parametrize("columns", [range(0, 96), range(32, 96), range(24, 90), range(40, 60)])
def test_a_part_of_8_bit_floats_in_blocks_is_exact(
    block: tuple[int, int], rows: range, columns: range
) -> None:
    weight = in_blocks(*block)
    scales, left = block_part(weight.scales, weight.block, rows, columns)
    inside = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    part = Fp8Weight(values=weight.values[inside], scales=scales, block=left, dtype=torch.float32)
    assert torch.equal(part.dequantize(), weight.dequantize()[inside])


def test_a_part_inside_of_whole_blocks_keeps_them() -> None:
    _, block = block_part(in_blocks(8, 32).scales, (8, 32), range(8, 40), range(32, 96))
    assert block == (8, 32)
    _, block = block_part(in_blocks(40, 96).scales, (40, 96), range(8, 24), range(32, 96))
    assert block == (16, 64)


@pytest.mark.parametrize(
    "weight",
    [
        random(6, 64, dtype=torch.bfloat16),
        quantize_groups(random(6, 64, dtype=torch.float32), bits=8, group=32, dtype=torch.float32),
        quantize_fp8(random(6, 64, dtype=torch.float32), dtype=torch.float32),
    ],
    ids=["plain", "groups", "8-bit floats"],
)
def test_rows_of_zeros_fill_a_weight_up(weight: Weight) -> None:
    filled = plain(with_height(weight, 9))
    assert torch.equal(filled[:6], plain(weight))
    assert filled.shape == (9, 64)
    assert not filled[6:].any()
    assert with_height(weight, 6) is weight


def test_parts_of_an_embedding_sum_to_its_rows() -> None:
    matrix = random(10, 4, dtype=torch.float32)
    ids = torch.tensor([9, 0, 3, 4, 4, 5])
    parts = [
        embed_part(TorchLinear(matrix[first : first + 5]), ids, first_token=first, vocab_size=10)
        for first in (0, 5)
    ]
    assert torch.equal(parts[0] + parts[1], matrix[ids])
    assert not (parts[0].any(1) & parts[1].any(1)).any()
