"""Ranks in processes of their own, which run what a test sends them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.rendezvous import MeetingPlace, Rendezvous, join
from tests.ranks.collectives.rank_messages import answer_to, outcome_of, packed

LIMIT_S = 60.0
"""For anything that is to come; generous, since machines are busy."""
T = TypeVar("T")
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.ranks.collectives.rank_work"])


class Descriptor:
    """An open file that arrives in a new process as a number of its own."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _detached, (reduction.DupFd(self._fd),)  # type: ignore[no-untyped-call]


def _detached(passed: Any) -> int:
    fd: int = passed.detach()
    return fd


@dataclass(frozen=True, slots=True)
class RankProcess:
    """One of a group."""

    process: Any
    connection: Connection

    def send(self, work: Callable[[GroupCollective], object]) -> None:
        """Begins `work`: a function of rank_work, and its arguments by name."""
        self.connection.send_bytes(packed(work))

    def answers(self, within_s: float) -> bool:
        """True once there is one."""
        return self.connection.poll(within_s)

    def outcome(self) -> Any:
        """What the work has returned, or raised."""
        assert self.answers(LIMIT_S), "this rank hangs"
        return outcome_of(self.connection.recv_bytes())

    def kill(self) -> None:
        """SIGKILL; it is gone afterwards."""
        self.process.kill()
        self.process.join(LIMIT_S)

    def stop(self) -> None:
        """SIGSTOP."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)


class RankProcesses:
    """A group of them; all are killed in the end."""

    def __init__(self, place: MeetingPlace, deadline_s: float) -> None:
        self.place = place
        self.ranks = [
            _start(place.rendezvous, rank, deadline_s)
            for rank in range(place.rendezvous.world_size)
        ]

    def __len__(self) -> int:
        return len(self.ranks)

    def run(self, work: Callable[[GroupCollective], T]) -> list[T]:
        """`work` at all ranks at once; raises what one of them has raised."""
        found = self.outcomes(work)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return found

    def outcomes(self, work: Callable[[GroupCollective], object]) -> list[Any]:
        """What each rank's `work` has returned, or raised."""
        for rank in self.ranks:
            rank.send(work)
        return [rank.outcome() for rank in self.ranks]

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.connection.close()
        self.place.close()


@contextlib.contextmanager
def rank_processes(place: MeetingPlace, deadline_s: float = LIMIT_S) -> Iterator[RankProcesses]:
    """The group that `place` was opened for."""
    group = RankProcesses(place, deadline_s)
    try:
        yield group
    finally:
        group.close()


def equal_everywhere(found: Sequence[Any]) -> bool:
    """True when all ranks have the same."""
    return all(each == found[0] for each in found)


def _start(rendezvous: Rendezvous, rank: int, deadline_s: float) -> RankProcess:
    ours, theirs = _PROCESSES.Pipe()
    fd = None if rendezvous.segment_fd is None else Descriptor(rendezvous.segment_fd)
    plain = replace(rendezvous, segment_fd=None)
    process = _PROCESSES.Process(target=_serve, args=(theirs, plain, fd, rank, deadline_s))
    process.daemon = True
    process.start()
    theirs.close()
    return RankProcess(process, ours)


def _serve(
    connection: Connection, plain: Rendezvous, fd: int | None, rank: int, deadline_s: float
) -> None:
    """A rank's process: one work after the other, until its test is gone."""
    torch.set_num_threads(1)
    rendezvous = replace(plain, segment_fd=fd)
    collective = join(rendezvous, rank, deadline_s=deadline_s)
    with contextlib.suppress(EOFError):
        while True:
            connection.send_bytes(answer_to(connection.recv_bytes(), collective))
