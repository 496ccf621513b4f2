"""How many of a worker's seats one router may take while others of its fleet want them too.

    nobody else waits  -> any that is free, a part of those that were free between two words
    others wait, too   -> its part: all parts together are the worker's seats

Routers hear of each other a few times a second. Between two words one that saw a free seat would
take it as often as another did, and one whose own requests end would have every seat again before
the others hear of it. Where each keeps to its part, no seat is promised twice and nobody starves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from cluster.identity import WorkerKey


@dataclass(frozen=True, slots=True)
class SeatPart:
    """Of one router at one worker."""

    num_parts: int = 1
    """This router, and each other one that has a line."""
    turn: int = 0
    """From 0; seats that are left over go to the first."""
    num_routers: int = 1
    """That are there, with this one."""

    @classmethod
    def of_router(
        cls, own: str, waiting: Sequence[str], worker: WorkerKey, num_routers: int = 1
    ) -> SeatPart:
        """`waiting`: names of the others that have a line. What is left over goes to another
        router at each worker."""
        names = sorted({own, *waiting})
        shift = crc32(worker.worker_id.encode())
        return cls(len(names), (names.index(own) + shift) % len(names), num_routers)

    def seats(self, max_seqs: int) -> int:
        """Of so many; at least one, else a worker with few would be closed to a router."""
        each, rest = divmod(max_seqs, self.num_parts)
        return max(1, each + (self.turn < rest))

    def before_next_word(self, num_free: int) -> int:
        """Of so many that are free as far as is known, until others have said more; at least one,
        else the last seat would be nobody's. Words cross: what others took since they spoke last is
        as much again, and is left free."""
        if self.num_routers == 1:
            return num_free
        return max(1, num_free // (self.num_routers + 1))


ALL_SEATS = SeatPart()
