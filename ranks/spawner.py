"""The seam to whatever starts the ranks of a group: processes of this host, or actors of Ray.

    place    where each rank is to be, before anything starts and before a weight is read
    start    one rank's process; the conductor's is there already
    poll     has it ended, and how; asked some twenty times a second
    kill     one rank, now; `close` ends all that are left

The conductor calls from its main thread while it starts, then from its watch's alone: never from
two at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cluster.process.exit_words import exit_in_words
from cluster.process.signs_of_life import SignsOfLife
from ranks.launch import RankLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlaces:
    """Where a group's ranks are."""

    nodes: tuple[str, ...]
    """A name for the host of each rank, in order; the conductor's first. Equal where ranks share a
    host."""
    address: str = "127.0.0.1"
    """Of the conductor's host, as all its ranks reach it."""

    @property
    def is_one_host(self) -> bool:
        """True when all may meet in shared memory."""
        return len(set(self.nodes)) == 1

    @property
    def far_ranks(self) -> tuple[int, ...]:
        """Those on other hosts than the conductor's."""
        return tuple(rank for rank, node in enumerate(self.nodes) if node != self.nodes[0])

    def ranks_beside(self, rank: int) -> tuple[int, ...]:
        """Those on the host of `rank`, itself among them: they share its cores and its memory."""
        return tuple(other for other, node in enumerate(self.nodes) if node == self.nodes[rank])


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How a rank's process ended, as far as anybody saw."""

    exit_code: int | None = None
    """Minus the signal that ended it; None where nobody knows."""
    words: str = ""
    """In place of an exit code: what the spawner was told."""
    last_lines: tuple[str, ...] = ()
    """Of its log; empty where it wrote none."""

    @property
    def is_own_doing(self) -> bool:
        """It has left with an exit code, as a rank does that has lost another: of several that
        ended at once, one that was killed is the cause."""
        return self.exit_code is not None and self.exit_code >= 0

    @property
    def ending(self) -> str:
        """For RankLost: as in exit_words.py, or what the spawner says."""
        return self.words if self.exit_code is None else exit_in_words(self.exit_code)


class RankProcess(Protocol):
    """One rank that was started."""

    @property
    def rank(self) -> int:
        """Which."""

    @property
    def pid(self) -> int | None:
        """On its own host; None until it is known. RankReady says it as well."""

    @property
    def node(self) -> str:
        """As in the RankPlaces."""

    def poll(self) -> RankEnd | None:
        """None while it runs. Never blocks, never raises; passes on what it has logged meanwhile.
        Once it has told an end it tells the same for ever."""

    def signs_of_life(self) -> SignsOfLife | None:
        """As the kernel sees it now; None where that cannot be seen, as on another host."""

    def kill(self) -> None:
        """Ends it now, also one that was stopped. Idempotent; does not wait, never raises."""


class Spawner(Protocol):
    """Starts ranks; owns what it started."""

    def place(self, world_size: int) -> RankPlaces:
        """Reserves room for them, the conductor included, or says where there is. Once, before
        `start`, within 30 s of the time that it has patience with hosts which are to join. Raises
        ConfigError with a table of what was asked and what is free."""

    def start(self, launch: RankLaunch) -> RankProcess:
        """Begins one and returns; that it runs is told by its RankReady, that it ended by `poll`.
        Raises ConfigError where it cannot even begin."""

    def close(self) -> None:
        """Ends all that still run and waits until they are gone, a few seconds at most; gives the
        room back. Idempotent, never raises; also called after a start that failed half way."""
