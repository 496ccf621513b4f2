"""Ranks of one process that meet in shared memory, each on a thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, join

LIMIT_S = 60.0
T = TypeVar("T")


def run_shared_ranks(num_ranks: int, work: Callable[[int, GroupCollective], T]) -> list[T]:
    """The results of `work(rank, collective)`. Raises what the first rank that failed has raised;
    the others, told that it was given up, are not waited for longer."""
    place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, num_ranks, generation=1)

    def run(rank: int) -> T:
        with contextlib.closing(join(place.rendezvous, rank, deadline_s=LIMIT_S)) as own:
            try:
                return work(rank, own)
            except BaseException:
                place.give_up(rank)
                raise

    with contextlib.closing(place), ThreadPoolExecutor(num_ranks) as threads:
        return list(threads.map(run, range(num_ranks)))
