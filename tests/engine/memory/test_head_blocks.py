"""A block's mark names what a head has read of it, and nothing else of the block is touched."""

from __future__ import annotations

import pytest
import torch

from cluster.kv_shape import KvShape
from engine.contract.head_in_blocks import HeadInBlocks
from engine.memory import head_blocks
from engine.memory.head_blocks import HeadBlocks
from engine.memory.kv_pool import KvLayout, KvPool

ROOM = HeadInBlocks(num_layers=3, num_kv_heads=1, hidden_size=20, identity="tested")
LARGEST = 2**64 - 1


def made(dtype: torch.dtype) -> tuple[KvPool, HeadBlocks]:
    shape = KvShape(num_layers=2 + ROOM.num_layers, num_planes=2, num_kv_heads=1, head_dim=4)
    pool = KvPool(KvLayout(shape=shape, block_size=8, dtype=dtype), 4, "cpu")
    return pool, HeadBlocks(pool, ROOM)


@pytest.fixture(params=["host", "device"], autouse=True)
def marks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where marks are, of a device's as well: tensors on the CPU here."""
    if request.param == "device":
        monkeypatch.setattr(head_blocks, "_HostMarks", head_blocks.DeviceMarks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8])
def test_the_state_comes_back_where_all_marks_are_those_asked_for(dtype: torch.dtype) -> None:
    pool, blocks = made(dtype)
    states = torch.randn(2, 20)
    blocks.mark([3, 1], [7, LARGEST], states)
    found = blocks.state_behind([3, 1], [7, LARGEST])
    assert found is not None and torch.equal(found, states[1])
    for ids, marks in (([3, 1], [7, 8]), ([3, 2], [7, LARGEST]), ([1, 3], [7, LARGEST]), ([], [])):
        assert blocks.state_behind(ids, marks) is None
    blocks.forget([3])
    assert blocks.state_behind([3, 1], [7, LARGEST]) is None
    assert blocks.state_behind([1], [LARGEST]) is not None


def test_a_block_that_is_copied_takes_its_mark_along() -> None:
    pool, blocks = made(torch.bfloat16)
    state = torch.randn(1, 20)
    blocks.mark([2], [9], state)
    pool.tensor[0] = pool.tensor[2]
    found = blocks.state_behind([0], [9])
    assert found is not None and torch.equal(found, state[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8])
def test_the_models_layers_and_the_heads_own_are_left_as_they_were(dtype: torch.dtype) -> None:
    pool, blocks = made(dtype)
    pool.tensor.view(torch.uint8).fill_(3)
    blocks.mark([0, 1, 2, 3], [1, 2, 3, 4], torch.randn(4, 20))
    assert bool((pool.tensor[:, :3].contiguous().view(torch.uint8) == 3).all())
    assert torch.equal(blocks.kv.layer(0), pool.layer(2))
    assert blocks.kv.layer(0).data_ptr() == pool.layer(2).data_ptr()
