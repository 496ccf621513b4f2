"""Ranks of one place: right sums, the same bits everywhere, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from cluster.errors import ConfigError, InternalError, RankLost
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, Rendezvous, join
from ranks.collectives.segment import SharedSegment
from tests.ranks.collectives import every_operation, rank_work
from tests.ranks.collectives.every_operation import DTYPES, SHAPES
from tests.ranks.collectives.rank_processes import LIMIT_S, RankProcesses, rank_processes
from tests.ranks.collectives.shared_groups import narrow_place

pytestmark = pytest.mark.usefixtures("native_collectives")
GROWTH_BYTES = 1 << 20


@pytest.fixture(scope="module", params=["2 ranks", "3 ranks", "3 ranks, narrow"])
def group(request: pytest.FixtureRequest) -> Iterator[RankProcesses]:
    """Trays of a page, where everything but a row goes through in pieces, and ordinary ones."""
    num_ranks = int(request.param[0])
    if "narrow" in request.param:
        place = narrow_place(num_ranks)
    else:
        place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, num_ranks, generation=7)
    with rank_processes(place) as processes:
        yield processes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_ranks_get_the_sum_in_the_order_of_the_ranks(
    group: RankProcesses, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    every_operation.check_sums(group, shape, dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64], ids=str)
@pytest.mark.parametrize("num_rows", [1, 40])
def test_columns_of_all_ranks_stand_side_by_side(
    group: RankProcesses, num_rows: int, dtype: torch.dtype
) -> None:
    every_operation.check_gathers(group, num_rows, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_rank_gets_the_sum_of_its_own_rows(group: RankProcesses, dtype: torch.dtype) -> None:
    every_operation.check_scattered_sums(group, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_arrive_where_they_are_for(group: RankProcesses, dtype: torch.dtype) -> None:
    every_operation.check_swaps(group, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_one_rank_has_all_ranks_have(group: RankProcesses, dtype: torch.dtype) -> None:
    every_operation.check_broadcasts(group, dtype)


def test_ten_thousand_calls_leave_nothing_behind(group: RankProcesses) -> None:
    """So many of two ranks; three cores that do not exist make each call of three dear, and what a
    call leaves behind does not depend on their number."""
    num_calls = 10_000 if len(group) == 2 else 2_000
    work = partial(rank_work.reduced_often, num_calls=num_calls, shape=(1, 96))
    for num_bytes, num_fds in group.run(partial(rank_work.growth_of, work=work)):
        assert num_bytes < GROWTH_BYTES and num_fds == 0


def test_all_operations_in_turn_leave_nothing_behind(group: RankProcesses) -> None:
    work = partial(rank_work.mixed, num_rounds=500)
    for num_bytes, num_fds in group.run(partial(rank_work.growth_of, work=work)):
        assert num_bytes < GROWTH_BYTES and num_fds == 0


def test_ranks_that_do_not_run_the_same_operation_are_told_and_end() -> None:
    with rank_processes(MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 2, generation=1)) as group:
        errors = group.outcomes(rank_work.rank_apart)
        assert any(isinstance(error, InternalError) for error in errors)
        assert all(isinstance(error, InternalError | RankLost) for error in errors)
        again = group.outcomes(partial(rank_work.reduced, shape=(1, 8), dtype=torch.float32))
        assert all(isinstance(error, RankLost) for error in again)


def test_a_rank_that_has_left_makes_no_call_any_more() -> None:
    with rank_processes(MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 1, generation=1)) as group:
        (error,) = group.outcomes(rank_work.left)
        assert isinstance(error, RankLost) and "left" in error.message


def test_a_rank_alone_has_what_it_brings() -> None:
    with rank_processes(MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 1, generation=1)) as group:
        every_operation.check_sums(group, (4, 100), torch.bfloat16)
        every_operation.check_swaps(group, torch.float32)


def test_a_rank_is_one_process() -> None:
    place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 2, generation=3)
    with rank_processes(place) as group:
        group.run(partial(rank_work.met, deadline_s=LIMIT_S))
        with pytest.raises(ConfigError, match="rank 1 of generation 3 is another process"):
            join(place.rendezvous, 1, deadline_s=1.0)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (torch.ones(2, 8)[:, :4], "contiguous"),
        (torch.ones(1, 8, dtype=torch.float64), "cannot be summed"),
    ],
)
def test_rows_that_cannot_be_summed_are_named(rows: torch.Tensor, words: str) -> None:
    segment = SharedSegment.create(1, 1)
    meeting = Rendezvous(
        kind=CollectiveKind.SHARED_MEMORY, generation=1, world_size=1, segment_fd=segment.fd
    )
    collective = join(meeting, 0, deadline_s=1.0)
    with pytest.raises(ValueError, match=words):
        collective.all_reduce(rows)
    collective.close()
    segment.close()
