"""The memory that all adapters of a rank lie in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from cluster.models.model_split import ModelSplit
from engine.model.adapters.bank import AdapterBank, AdapterRoom
from tests.cluster.models.adapters.test_files import CONFIG
from tests.worker.engine import large_pages

NUM_BYTES = 32 << 20


def bank_of(num_lora_ranks: int, dtype: torch.dtype) -> AdapterBank:
    room = AdapterRoom(num_lora_ranks=num_lora_ranks, num_slots=2)
    return AdapterBank(ModelSplit(config=CONFIG), room, dtype=dtype, device=torch.device("cpu"))


def stacks_of(bank: AdapterBank) -> list[torch.Tensor]:
    layers = [(at.qkv, at.output, at.gate_up, at.down) for at in bank.layers]
    sites = [site for layer in layers for site in layer if site is not None]
    return [half for site in sites for part in site.parts for half in (part.down, part.up)]


def bytes_in_large_pages(address: int) -> int:
    """Of the mapping that holds the address."""
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        first, end = (int(bound, 16) for bound in mapping.split(maxsplit=1)[0].split("-"))
        found = re.search(r"AnonHugePages: +(\d+) kB", mapping)
        if first <= address < end and found:
            return int(found[1]) * 1024
    return 0


@pytest.mark.parametrize("num_lora_ranks", [1, 7])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_stacks_begin_with_a_line_of_the_cache_and_lie_behind_each_other(
    num_lora_ranks: int, dtype: torch.dtype
) -> None:
    stacks = stacks_of(bank_of(num_lora_ranks, dtype))
    for stack, after in zip(stacks, stacks[1:], strict=False):
        end = stack.data_ptr() + stack.nbytes
        assert stack.data_ptr() % 64 == 0
        assert end <= after.data_ptr() < end + 64
    assert not any(bool(stack.any()) for stack in stacks)


@pytest.mark.skipif(not large_pages.ARE_GIVEN, reason="this system gives no large pages on request")
def test_a_bank_lies_in_large_pages_though_each_of_its_stacks_is_small() -> None:
    rank_bytes = bank_of(1, torch.bfloat16).num_bytes
    bank = bank_of(NUM_BYTES // rank_bytes, torch.bfloat16)
    stacks = stacks_of(bank)
    for stack in stacks:
        stack.fill_(1)
    assert bytes_in_large_pages(stacks[len(stacks) // 2].data_ptr()) >= bank.num_bytes // 2
