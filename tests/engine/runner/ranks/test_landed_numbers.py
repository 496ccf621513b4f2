"""What the host reads of other ranks has landed."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from engine.runner.ranks.group import RankGroup
from engine.runner.ranks.rank_turns import LoadingTogether
from ranks.collectives.group_collective import GroupCollective, gathered
from tests.kernels.ranks import LateRank, ThreadRank, run_ranks

CPU = torch.device("cpu")


def test_what_is_gathered_for_the_host_is_there() -> None:
    def work(index: int, rank: ThreadRank) -> list[list[int]]:
        return gathered(cast(GroupCollective, rank), torch.tensor([[index, 5]])).tolist()

    assert run_ranks(2, work, LateRank) == [[[0, 5, 1, 5]]] * 2


def test_no_rank_takes_memory_that_nobody_has_written_for_its_number_of_blocks() -> None:
    def work(index: int, rank: ThreadRank) -> int:
        collective = cast(GroupCollective, rank)
        if index == 0:
            return conductor_of(collective).least(100, CPU)
        together = LoadingTogether(collective, limit_s=60.0, tell=lambda said: None)
        return together.least(90, CPU)

    assert run_ranks(2, work, LateRank) == [90, 90]


def conductor_of(collective: GroupCollective) -> RankGroup:
    """As much of one as gathers."""
    ties: Any = type("Ties", (), {"collective": collective})
    return RankGroup(ties, cast(Any, None), lambda phase, fraction: None)


@pytest.mark.parametrize("index", [0, 1])
def test_digests_of_other_ranks_are_gathered_to_be_read(index: int) -> None:
    def work(at: int, rank: ThreadRank) -> list[list[int]]:
        group = conductor_of(cast(GroupCollective, rank))
        return group.gather(torch.tensor([[at]]), ()).tolist()

    assert run_ranks(2, work, LateRank)[index] == [[0, 1]]
