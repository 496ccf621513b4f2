"""Whole blocks, bit by bit, within a pool and to and from a staging buffer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernels.reference.block_copy import block_copy as reference_copy
from kernels.triton.block_copy import block_copy
from tests.kernels.triton_places import DEVICES

Copy = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]


def ids(values: list[int], device: str) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


def pool_of(
    dtype: torch.dtype, device: str, shape: tuple[int, ...] = (9, 3, 2, 2, 5, 7)
) -> torch.Tensor:
    """Every byte is random; odd sizes leave a rest in each tile."""
    generator = torch.Generator().manual_seed(1)
    size = torch.empty(shape, dtype=dtype).nbytes
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).view(shape).to(device)


@pytest.mark.parametrize("copy", [reference_copy, block_copy], ids=["reference", "triton"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_blocks_go_where_they_are_sent_and_nothing_else_changes(
    dtype: torch.dtype, device: str, copy: Copy
) -> None:
    pool = pool_of(dtype, device)
    staging = torch.zeros((4, *pool.shape[1:]), dtype=dtype, device=device)
    copy(pool, ids([8, 0, 3], device), staging, ids([2, 0, 3], device))
    as_bytes, staged = pool.view(torch.uint8), staging.view(torch.uint8)
    assert torch.equal(staged[[2, 0, 3]], as_bytes[[8, 0, 3]])
    assert not staged[1].any()
    before = as_bytes.clone()
    copy(staging, ids([2], device), pool, ids([5], device))
    assert torch.equal(as_bytes[5], before[8])
    others = [0, 1, 2, 3, 4, 6, 7, 8]
    assert torch.equal(as_bytes[others], before[others])


@pytest.mark.parametrize("device", DEVICES)
def test_a_block_is_copied_within_its_pool(device: str) -> None:
    pool = pool_of(torch.float16, device, (6, 2, 2, 3, 16, 200))  # several tiles a block
    before = pool.clone()
    block_copy(pool, ids([1, 1], device), pool, ids([4, 5], device))
    assert torch.equal(pool.view(torch.uint8)[[4, 5]], before.view(torch.uint8)[[1, 1]])
    block_copy(pool, ids([], device), pool, ids([], device))


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4), r"blocks of \(3,\) do not fit into \(4,\)"),
        (torch.zeros(2, 3), torch.zeros(2, 3).half(), "target is torch.float16"),
        (torch.zeros(3, 2).T, torch.zeros(2, 3), "source has strides"),
    ],
)
def test_what_does_not_fit_is_refused(
    source: torch.Tensor, target: torch.Tensor, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        block_copy(source, ids([0], "cpu"), target, ids([1], "cpu"))
    with pytest.raises(ValueError, match="2 sources for 1 targets"):
        block_copy(torch.zeros(2, 3), ids([0, 1], "cpu"), torch.zeros(2, 3), ids([1], "cpu"))
