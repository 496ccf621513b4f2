"""Rows that go to the ranks of their experts and come back, against one rank that has them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.experts import Experts, HeldExperts
from kernels.placed_experts import ExpertGroups, PlacedExperts
from kernels.tape.collective import ExpertCollective, ReceivedRows
from kernels.tape.expert_exchange import exchange_experts
from kernels.tape.row_operations import rows_of_ranks
from tests.kernels.kernel_sets import DTYPES, cpu_set, tolerance
from tests.kernels.ranks import LateRank, ThreadRank, run_ranks
from tests.kernels.test_experts import HIDDEN, NUM_EXPERTS, SIZE, choice, matrices, random

pytestmark = pytest.mark.usefixtures("every_level")
IN_RUNS = (0, 0, 0, 1, 1, 1)
MIXED = (1, 0, 1, 0, 0, 1)


def placed(
    groups: Sequence[int], rank: int, sharers: int, dtype: torch.dtype, name: str = "native"
) -> PlacedExperts:
    """Of a rank whose group holds some experts, and which has a run of their columns."""
    gate_up, down = matrices(dtype)
    own = rank // sharers
    ids = tuple(expert for expert, group in enumerate(groups) if group == own)
    part = slice(*(SIZE * (rank % sharers + end) // sharers for end in (0, 1)))
    gates = [torch.cat([half[part] for half in gate_up[e].chunk(2)]) for e in ids]
    downs = [down[e][:, part].contiguous() for e in ids]
    experts = cpu_set(name).pack_experts(gates, downs, HeldExperts(ids, NUM_EXPERTS))
    table = ExpertGroups(of_experts=torch.tensor(groups), own=own, sharers=sharers)
    return PlacedExperts(experts, table)


def exchanged(
    groups: Sequence[int],
    num_rows: Sequence[int],
    k: int,
    dtype: torch.dtype,
    sharers: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all ranks' rows one below the other, and of a single rank."""
    x = random(sum(num_rows), HIDDEN, dtype=dtype)
    ids, weights = choice(len(x), k)
    rows = torch.arange(len(x)).split(list(num_rows))

    def work(rank: int, collective: ThreadRank) -> torch.Tensor:
        own = rows[rank]
        experts = placed(groups, rank, sharers, dtype)
        return exchange_experts(experts, collective, x[own], ids[own], weights[own])

    alone = cpu_set("native").pack_experts(*matrices(dtype))(x, ids, weights)
    return torch.cat(run_ranks(len(num_rows), work)), alone


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [IN_RUNS, MIXED])
@pytest.mark.parametrize(
    ("num_rows", "k"), [((1, 1), 2), ((9, 8), 3), ((40, 0), 2), ((0, 1), 1), ((0, 0), 2)]
)
def test_wherever_experts_are_a_row_has_the_bits_of_a_single_rank(
    num_rows: tuple[int, ...], k: int, groups: tuple[int, ...], dtype: torch.dtype
) -> None:
    ours, alone = exchanged(groups, num_rows, k, dtype)
    assert torch.equal(ours, alone)


def test_three_ranks_with_different_rows_have_the_bits_of_a_single_rank() -> None:
    ours, alone = exchanged((2, 0, 1, 2, 1, 0), (3, 11, 6), 3, torch.float32)
    assert torch.equal(ours, alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_that_share_their_experts_columns_add_them_up(dtype: torch.dtype) -> None:
    """Each part is rounded, and then multiplied by a weight of up to nine."""
    ours, alone = exchanged(MIXED, (5, 0, 9, 2), 3, dtype, sharers=2)
    limits = {name: 9 * limit for name, limit in tolerance(dtype).items()}
    torch.testing.assert_close(ours, alone, **limits)


class Counted:
    """An ExpertCollective that notes how many rows leave for other ranks."""

    def __init__(self, inner: ThreadRank) -> None:
        self._inner = inner
        self.sent: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def all_to_all(
        self, rows: torch.Tensor, num_rows: Sequence[int], known: torch.Tensor | None = None
    ) -> object:
        """As the inner one."""
        self.sent.append(sum(num_rows) - num_rows[self._inner.rank])
        return self._inner.all_to_all(rows, num_rows, known)


def test_a_row_goes_to_a_rank_once_and_each_of_its_branches_comes_back() -> None:
    ids = torch.tensor([[3, 4, 5], [0, 1, 2], [0, 4, 5]])

    def work(rank: int, collective: ThreadRank) -> list[int]:
        counted = Counted(collective)
        own = ids if rank == 0 else ids[:0]
        x, weights = torch.randn(len(own), HIDDEN), torch.ones(own.shape)
        experts = placed(IN_RUNS, rank, 1, torch.float32)
        exchange_experts(experts, cast(ExpertCollective, counted), x, own, weights)
        return counted.sent

    assert run_ranks(2, work) == [[2, 0], [0, 5]]


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for a device: operations whose result it reads, and looks for
    what has landed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func.overloadpacket in (torch.ops.aten.nonzero, torch.ops.aten._local_scalar_dense):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


class OnDevice(LateRank):
    """As ranks with a device each: who is not told the numbers gathers them, and waits."""

    num_waits = 0

    def all_to_all(
        self, rows: torch.Tensor, num_rows: Sequence[int], known: torch.Tensor | None = None
    ) -> ReceivedRows:
        """See ExpertCollective."""
        self.num_waits += known is None
        return super().all_to_all(rows, num_rows, known)

    def wait_until_landed(self) -> None:
        """See Collective."""
        self.num_waits += 1
        super().wait_until_landed()


@pytest.mark.parametrize(("num_ranks", "sharers"), [(2, 1), (6, 2), (8, 1)])
def test_the_host_waits_for_a_device_once_however_many_ranks_there_are(
    num_ranks: int, sharers: int
) -> None:
    groups = torch.arange(num_ranks).repeat_interleave(2) // sharers

    def work(rank: int, collective: ThreadRank) -> tuple[list[str], int]:
        table = ExpertGroups(of_experts=groups, own=rank // sharers, sharers=sharers)
        kept = cast(Experts, lambda x, ids, weights: x.clone())
        ids = torch.arange(4 * rank).view(-1, 2) % len(groups)
        x, weights = torch.ones(len(ids), HIDDEN), torch.ones(ids.shape)
        with Waits() as waits:
            exchange_experts(PlacedExperts(kept, table), collective, x, ids, weights)
        return waits.found, cast(OnDevice, collective).num_waits

    assert run_ranks(num_ranks, work, OnDevice) == [([], 1)] * num_ranks


def test_a_steps_rows_are_shared_out_in_runs_as_even_as_they_go() -> None:
    assert rows_of_ranks(7, 3) == [2, 2, 3]
    assert rows_of_ranks(1, 4) == [0, 0, 0, 1]
    assert rows_of_ranks(0, 2) == [0, 0]
