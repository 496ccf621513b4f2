"""A rank that is killed or stopped, before, in and between the phases of a call.

Nobody waits for it beyond the deadline, and everybody knows who it was.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from cluster.errors import RankLost, status_of
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, join
from tests.ranks.collectives import rank_work
from tests.ranks.collectives.rank_processes import LIMIT_S, RankProcesses, rank_processes
from tests.ranks.collectives.shared_groups import narrow_place

pytestmark = pytest.mark.usefixtures("native_collectives")
SHORT_S = 2.0
"""A deadline that passes; LIMIT_S is one that does not."""
FOREVER = 10**9
LINES_AT, LINE_BYTES = 256, 128  # as in native/segment.h
ONE_ROW = partial(rank_work.reduced, shape=(1, 576), dtype=torch.float32)
WITHOUT_END = {
    "one row": partial(rank_work.reduced_often, num_calls=FOREVER, shape=(1, 576)),
    "many rows": partial(rank_work.reduced_often, num_calls=FOREVER, shape=(700, 576)),
    "all operations": partial(rank_work.mixed, num_rounds=FOREVER),
}


@contextlib.contextmanager
def group_of(num_ranks: int, deadline_s: float = LIMIT_S) -> Iterator[RankProcesses]:
    """That have all come, so that nobody is late because it still starts."""
    place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, num_ranks, generation=5)
    with rank_processes(place, deadline_s) as group:
        group.run(partial(rank_work.met, deadline_s=LIMIT_S))
        yield group


def assert_lost(error: object, ranks: tuple[int, ...]) -> None:
    assert isinstance(error, RankLost), error
    assert error.ranks == ranks
    assert status_of(error).code == "rank_lost"


@pytest.mark.parametrize("work", WITHOUT_END.values(), ids=WITHOUT_END)
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_rank_that_goes_in_the_middle_of_its_calls_is_named_by_all_others(
    work: partial[int], end: str
) -> None:
    with group_of(3, SHORT_S) as group:
        for rank in group.ranks:
            rank.send(work)
        assert not any(rank.answers(0.1) for rank in group.ranks)
        group.ranks[1].kill() if end == "killed" else group.ranks[1].stop()
        for rank in (group.ranks[0], group.ranks[2]):
            assert_lost(rank.outcome(), (1,))


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_who_has_seen_a_rank_end_ends_all_waits_for_it_long_before_the_deadline(end: str) -> None:
    with group_of(3) as group:
        waiting = (group.ranks[0], group.ranks[2])
        for rank in waiting:
            rank.send(ONE_ROW)
        group.ranks[1].kill() if end == "killed" else group.ranks[1].stop()
        assert not any(rank.answers(0.1) for rank in waiting)
        group.place.give_up(1)
        for rank in waiting:
            assert_lost(rank.outcome(), (1,))


def test_after_a_loss_every_call_of_every_rank_is_refused() -> None:
    with group_of(3) as group:
        group.place.give_up(2)
        for _ in range(2):
            for error in group.outcomes(ONE_ROW):
                assert_lost(error, (2,))


def test_a_rank_that_goes_on_after_it_was_given_up_learns_that_it_was() -> None:
    with group_of(2, SHORT_S) as group:
        group.ranks[1].stop()
        group.ranks[0].send(ONE_ROW)
        assert_lost(group.ranks[0].outcome(), (1,))
        group.ranks[1].go_on()
        group.ranks[1].send(ONE_ROW)
        error = group.ranks[1].outcome()
        assert_lost(error, (1,))
        assert "rank 1 of generation 5 was given up" in error.message


def test_who_was_stopped_itself_holds_nobody_lost() -> None:
    """All that it waited for had come while it stood still, for longer than its deadline."""
    with group_of(2, SHORT_S) as group:
        group.ranks[0].send(ONE_ROW)
        assert not group.ranks[0].answers(0.1)
        group.ranks[0].stop()
        group.ranks[1].send(ONE_ROW)
        assert group.ranks[1].outcome().is_right
        assert not group.ranks[0].answers(1.5 * SHORT_S)
        group.ranks[0].go_on()
        assert group.ranks[0].outcome().is_right


def test_who_was_stopped_itself_goes_on_waiting_where_it_was() -> None:
    with group_of(2, SHORT_S) as group:
        group.ranks[0].send(ONE_ROW)
        assert not group.ranks[0].answers(0.1)
        group.ranks[0].stop()
        assert not group.ranks[0].answers(SHORT_S)
        group.ranks[0].go_on()
        assert not group.ranks[0].answers(0.1)
        group.ranks[1].send(ONE_ROW)
        assert all(rank.outcome().is_right for rank in group.ranks)


class Ghost:
    """Rank 1 of 2: comes to as many phases as it is told, then never again."""

    def __init__(self, place: MeetingPlace) -> None:
        assert place.segment is not None
        self._segment, self._memory = place.segment, place.segment.memory.view

    def comes(self, num_phases: int) -> None:
        """As each is posted by rank 0, whose call it takes for its own."""
        for phase in range(1, num_phases + 1):
            while self._posted(0) < phase and not self._segment.lost:
                threading.Event().wait(0.001)
            at = LINES_AT + 8 + 8 * (phase & 1)
            self._memory[LINE_BYTES + at : LINE_BYTES + at + 8] = self._memory[at : at + 8]
            struct.pack_into("<Q", self._memory, LINES_AT + LINE_BYTES, phase)

    def _posted(self, rank: int) -> int:
        at = LINES_AT + rank * LINE_BYTES
        (posted,) = struct.unpack_from("<Q", self._memory, at)
        return int(posted)


def call(name: str, collective: GroupCollective) -> None:
    """One that takes several phases of a page each: 2 for a sum's piece, 1 for any other."""
    rows = torch.ones(4, 1024)
    if name == "all_reduce":
        collective.all_reduce(rows)
    elif name == "all_gather":
        collective.all_gather(rows)
    elif name == "gather":
        collective.gather(rows, 0)
    elif name == "reduce_scatter":
        collective.reduce_scatter(rows, [2, 2])
    elif name == "broadcast":
        collective.broadcast(rows, 0)
    else:
        collective.all_to_all(rows, [2, 2])


@pytest.mark.parametrize("num_phases", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "name", ["all_reduce", "all_gather", "gather", "reduce_scatter", "broadcast", "all_to_all"]
)
def test_a_rank_that_ends_between_two_phases_of_a_call_is_named_at_the_next(
    name: str, num_phases: int
) -> None:
    place = narrow_place(2)
    collective = join(place.rendezvous, 0, deadline_s=0.1)
    ghost = threading.Thread(target=Ghost(place).comes, args=(num_phases,))
    ghost.start()
    with pytest.raises(RankLost, match="rank 1 of generation 7 did not come") as caught:
        call(name, collective)
    ghost.join()
    assert caught.value.ranks == (1,)
    collective.close()
    place.close()


def test_a_rank_that_leaves_while_a_thread_of_it_waits_ends_that_wait_with_rank_lost() -> None:
    place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 2, generation=5)
    collective = join(place.rendezvous, 0, deadline_s=LIMIT_S)
    began, errors = threading.Event(), []

    def wait_for_nobody() -> None:
        began.set()
        try:
            collective.all_reduce(torch.zeros(1, 576))
        except RankLost as error:
            errors.append(error)

    waiting = threading.Thread(target=wait_for_nobody)
    waiting.start()
    began.wait()
    collective.close()
    waiting.join()
    assert len(errors) == 1
    place.close()
