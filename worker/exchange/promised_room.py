"""The room that this worker has promised to those whose caches it takes over.

    lease(blocks) -> place(blocks): the engine has them, and its load says so -> release(kept)

A round is as long as one hand-on may take. What it may take in all is fixed when it begins, by
`room_blocks`: several workers that leave together share that, and prefixes that were just taken
over are no cold blocks of this worker's own. What is given back may be leased again.
"""

from __future__ import annotations

from types import TracebackType

from cluster.deadline import Clock
from cluster.errors import OutOfBlocks
from cluster.generation import EngineLoad
from cluster.prefix_room import room_blocks

ROUND_S = 30.0
"""As long as a command that hands a cache on waits for it (cli/handed_on.py)."""


class PromisedRoom:
    """Of one worker. From the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self._open: set[RoomLease] = set()
        self._left_blocks = 0

    def lease(self, num_blocks: int, load: EngineLoad) -> RoomLease:
        """`load`: the engine's, now. Raises OutOfBlocks where it would take the place of what is as
        warm, or what others were promised."""
        if self._is_over():
            self._began_s, self._left_blocks = self._clock(), room_blocks(load)
        unplaced = sum(lease.num_blocks for lease in self._open if not lease.is_placed)
        room = max(0, min(self._left_blocks, room_blocks(load) - unplaced))
        if num_blocks > room:
            raise OutOfBlocks(
                f"a prefix of {num_blocks} blocks is not taken over: {room} are free, or colder, "
                "and promised to nobody"
            )
        self._left_blocks -= num_blocks
        lease = RoomLease(self, num_blocks)
        self._open.add(lease)
        return lease

    def take_back(self, num_blocks: int) -> None:
        """For leases only."""
        self._left_blocks += num_blocks

    def end(self, lease: RoomLease) -> None:
        """For leases only."""
        self._open.discard(lease)

    def _is_over(self) -> bool:
        if self._began_s is None:
            return True
        return not self._open and self._clock() - self._began_s >= ROUND_S


class RoomLease:
    """For one prefix. As a context manager it gives back, at its end, all that was not kept."""

    def __init__(self, room: PromisedRoom, num_blocks: int) -> None:
        self._room = room
        self.num_blocks = num_blocks
        self.is_placed = False
        self._num_kept = 0

    def place(self, num_blocks: int) -> None:
        """So many does the engine lack, and has made room for; the rest was here."""
        self._room.take_back(self.num_blocks - num_blocks)
        self.num_blocks, self.is_placed = num_blocks, True

    def keep(self, num_blocks: int) -> None:
        """So many of them stay cached."""
        self._num_kept = num_blocks

    def release(self) -> None:
        """Idempotent."""
        self._room.take_back(self.num_blocks - self._num_kept)
        self.num_blocks = self._num_kept
        self._room.end(self)

    def __enter__(self) -> RoomLease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
