from __future__ import annotations

import pytest
import torch

from cluster.errors import ConfigError
from cluster.kv_shape import KvShape
from engine.memory.kv_pool import KvLayout
from engine.memory.memory_request import MemoryBudget
from engine.runner.measured_pool import MeasuredMemory, blocks_that_fit

LAYOUT = KvLayout(
    shape=KvShape(num_layers=2, num_planes=2, num_kv_heads=2, head_dim=32),
    block_size=16,
    dtype=torch.float16,
)


def budget(num_blocks: int, available_blocks: int) -> MemoryBudget:
    """In blocks, for short."""
    return MemoryBudget(
        num_blocks=num_blocks,
        available_bytes=available_blocks * LAYOUT.block_bytes,
        weight_bytes=0,
        workspace_bytes=0,
        headroom_bytes=5 * LAYOUT.block_bytes,
        kv_bytes=num_blocks * LAYOUT.block_bytes,
    )


def measured(held: int, step: int) -> MeasuredMemory:
    return MeasuredMemory(
        held_bytes=held * LAYOUT.block_bytes, step_bytes=step * LAYOUT.block_bytes
    )


def test_what_loading_left_behind_makes_the_pool_smaller() -> None:
    plan = budget(num_blocks=80, available_blocks=100)
    assert blocks_that_fit(plan, measured(30, 10), LAYOUT, max_context_tokens=64) == 55


def test_a_pool_never_grows_beyond_its_plan() -> None:
    plan = budget(num_blocks=40, available_blocks=100)
    assert blocks_that_fit(plan, measured(1, 1), LAYOUT, max_context_tokens=64) == 40


def test_too_little_room_is_told_with_what_would_fit() -> None:
    plan = budget(num_blocks=40, available_blocks=100)
    with pytest.raises(ConfigError, match=r"room for 80 tokens; max_context_tokens is 96"):
        blocks_that_fit(plan, measured(80, 10), LAYOUT, max_context_tokens=96)
