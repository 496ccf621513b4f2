from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cluster.errors import ConfigError
from cluster.kv_shape import KvShape
from engine.memory.kv_pool import KvLayout, KvPool
from engine.memory.memory_request import MemoryBudget
from engine.model.ragged_batch import RaggedBatch
from engine.runner.measured_pool import (
    Forwards,
    MeasuredMemory,
    blocks_that_fit,
    bytes_beside_torch,
    measure_memory,
)
from tests.engine.model.tiny_llama import ragged_batch

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


def test_what_libraries_have_taken_makes_the_pool_smaller_and_is_told() -> None:
    plan = budget(num_blocks=80, available_blocks=100)
    nccl = replace(measured(30, 10), library_bytes=15 * LAYOUT.block_bytes)
    assert blocks_that_fit(plan, nccl, LAYOUT, max_context_tokens=64) == 40
    with pytest.raises(ConfigError, match=r"weights, \d+ MiB of NCCL and \d+ MiB for a step"):
        blocks_that_fit(plan, nccl, LAYOUT, max_context_tokens=96 * 16)


def test_a_draft_model_has_its_part_of_every_block() -> None:
    plan = budget(num_blocks=80, available_blocks=100)
    room = {"max_context_tokens": 64, "beside_bytes": LAYOUT.block_bytes // 2}
    assert blocks_that_fit(plan, measured(30, 20), LAYOUT, **room) == 30  # of 45 without


def test_too_little_room_is_told_with_what_would_fit() -> None:
    plan = budget(num_blocks=40, available_blocks=100)
    with pytest.raises(ConfigError, match=r"room for 80 tokens; max_context_tokens is 96"):
        blocks_that_fit(plan, measured(80, 10), LAYOUT, max_context_tokens=96)


def test_ranks_wait_for_the_longest_step_together_before_the_device_is_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    peaks = {"memory_reserved": 300, "max_memory_reserved": 420}
    for name in ("empty_cache", "reset_peak_memory_stats", "synchronize", *peaks):
        monkeypatch.setattr(
            torch.cuda, name, lambda *of, name=name: calls.append(name) or peaks.get(name)
        )

    def forward(batch: RaggedBatch, pool: KvPool) -> None:
        calls.append(f"forward over {pool.num_blocks} block")

    longest = ragged_batch([([1, 2, 3], 0, [0])])
    models = [Forwards(forward, LAYOUT, [longest] * 2), Forwards(forward, LAYOUT, [longest])]
    found = measure_memory(models, settle=lambda: calls.append("settle"))
    assert found == MeasuredMemory(held_bytes=300, step_bytes=120)
    at = calls.index("forward over 1 block")
    assert calls[at : at + 5] == ["forward over 1 block"] * 3 + ["settle", "synchronize"]


def test_memory_that_torch_does_not_hold_is_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (500, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 380)
    assert bytes_beside_torch(torch.device("cuda")) == 120
