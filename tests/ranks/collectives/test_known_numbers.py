"""Rows that change hands where all ranks know how many each has for each."""

from __future__ import annotations

import contextlib

import pytest
import torch

from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, join
from ranks.collectives.shared_memory import SharedMemoryCollective
from tests.ranks.collectives import rank_work
from tests.ranks.collectives.shared_threads import run_shared_ranks

pytestmark = pytest.mark.usefixtures("native_collectives")
NUMBERS = [[3, 1, 2], [4, 0, 5], [0, 7, 1]]


def test_nobody_asks_for_numbers_that_all_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(self: object, rows: torch.Tensor) -> torch.Tensor:
        raise AssertionError(f"asked for {rows}")

    def work(rank: int, collective: GroupCollective) -> bool:
        return rank_work.swapped(collective, NUMBERS, 8, torch.float32, is_known=True)

    monkeypatch.setattr(SharedMemoryCollective, "all_gather", asked)
    assert all(run_shared_ranks(3, work))


@pytest.mark.parametrize(
    "known",
    [torch.tensor([[1]]), torch.tensor([[2, 0]]), torch.tensor([[2]], dtype=torch.int32)],
    ids=["other rows than there are", "another number of ranks", "narrow integers"],
)
def test_numbers_that_cannot_be_are_refused_before_a_byte_is_moved(known: torch.Tensor) -> None:
    place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 1, generation=1)
    with (
        contextlib.closing(place),
        contextlib.closing(join(place.rendezvous, 0, deadline_s=1.0)) as collective,
        pytest.raises(ValueError, match="numbers|num_rows"),
    ):
        collective.all_to_all(torch.ones(2, 8), [2], known)
