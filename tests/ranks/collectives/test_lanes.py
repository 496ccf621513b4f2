"""Sums of every level that this CPU has: the bits of the reference, and nothing past the end."""

from __future__ import annotations

import pytest
import torch

from kernels.cpu.levels import LEVELS, Level
from kernels.cpu.native_sources import own_levels
from ranks.collectives import rendezvous
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.native_calls import load_collectives
from ranks.collectives.ordered_sum import ordered_sum
from tests.ranks.collectives.every_operation import DTYPES
from tests.ranks.collectives.shared_threads import run_shared_ranks

RANKS = 3
COUNTS = [1, 7, 8, 15, 16, 17, 33, 64, 79, 1000]
BEYOND = 32
"""Values behind those that are summed."""
ODD = [1.0, -1.0, 0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3e38, 65504.0, 2.0**-8, 2.0**-12]
"""Ties, what overflows, and what is no number."""


@pytest.fixture(params=LEVELS, ids=lambda level: level.name)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Level:
    """Ranks that meet have the library of it."""
    level: Level = request.param
    if level not in own_levels():
        pytest.skip(f"this CPU lacks {', '.join(level.needed)}")
    library = load_collectives(level)
    monkeypatch.setattr(rendezvous, "load_collectives", lambda: library)
    return level


def summed(parts: list[torch.Tensor]) -> torch.Tensor:
    """By ranks that meet. Fails where one has another sum, or has written past its rows."""
    count = parts[0].numel()

    def work(rank: int, collective: GroupCollective) -> torch.Tensor:
        whole = torch.full((count + BEYOND,), 7.0, dtype=parts[rank].dtype)
        whole[:count] = parts[rank]
        collective.all_reduce(whole[:count])
        assert whole[count:].eq(7.0).all()
        return whole[:count]

    sums = run_shared_ranks(len(parts), work)
    assert all(bits_of(each).equal(bits_of(sums[0])) for each in sums)
    return sums[0]


def bits_of(values: torch.Tensor) -> torch.Tensor:
    return values.view(torch.int32 if values.dtype is torch.float32 else torch.int16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_sums_have_the_bits_of_the_reference(level: Level, count: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(count)
    parts = [torch.randn(count, generator=generator).to(dtype) for _ in range(RANKS)]
    expected = torch.empty_like(parts[0])
    ordered_sum(parts, expected)
    assert bits_of(summed(parts)).equal(bits_of(expected))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ties_go_to_the_even_and_what_is_no_number_stays_none(
    level: Level, dtype: torch.dtype
) -> None:
    values = torch.tensor(ODD)
    pairs = torch.cartesian_prod(values, values).to(dtype)
    parts = [pairs[:, 0].contiguous(), pairs[:, 1].contiguous()]
    expected = torch.empty_like(parts[0])
    ordered_sum(parts, expected)
    found, is_number = summed(parts), ~expected.isnan()
    assert found.isnan().equal(~is_number)
    assert bits_of(found)[is_number].equal(bits_of(expected)[is_number])


def test_what_is_subnormal_in_bfloat16_is_zero_with_its_sign(level: Level) -> None:
    """As the instruction has it that rounds at the first level, so that all levels are alike."""
    smallest = torch.finfo(torch.bfloat16).tiny
    rows = torch.tensor([smallest, -smallest, smallest / 2, -smallest / 2]).to(torch.bfloat16)
    found = summed([rows, torch.full_like(rows, -0.0)])
    assert bits_of(found).tolist() == [0x80, 0x80 - 2**15, 0, -(2**15)]
