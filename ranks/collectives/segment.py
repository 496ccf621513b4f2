"""The shared memory of a group: made once by whoever starts the ranks, inherited by descriptor.

    parent   SharedSegment.create(...)  -> its descriptor goes to the ranks (pass_fds, SCM_RIGHTS)
    rank     SharedSegment.attach(fd, ...)  -> SharedMemoryCollective
    anybody  give_up(rank): all who wait, and all who come, get RankLost within about a millisecond
    all      close(); the kernel takes the memory back with the last one that had it

One generation has one segment, and a group that lost a rank never uses its own again.
`native/segment.h` says what lies where.
"""

from __future__ import annotations

import mmap

from cluster.errors import ConfigError
from ranks.nameless_memory import MemoryFacts, NamelessMemory

MAX_RANKS = 16
TRAY_BYTES = 2 << 20
"""Of one rank in one phase; what is longer goes through in pieces."""
DIRECT_BYTES = 96 << 10
"""Up to here every rank adds whole vectors itself; longer ones are added by parts.

Microseconds of two ranks on two cores in bfloat16, medians of two runs each on a busy machine:

    KiB         18        72        144       576
    whole       6.0, 6.1  12, 14    24, 22    76, 81
    by parts    7.4, 7.3  22, 29    21, 19    63, 64

To repeat: `python -m benchmarks.bench_collectives --direct-bytes N`, with 0 and with 1048576.
"""

_HEADER_BYTES = 4096
_LOST_AT = 128
_MAGIC = 0x53504C4954524E4B


class SharedSegment:
    """One process's view of it."""

    def __init__(self, memory: NamelessMemory) -> None:
        """Takes the memory over."""
        self.memory = memory
        _, self.generation, self.world_size = memory.facts
        self.tray_bytes, self.direct_bytes = memory.sizes(2)

    @classmethod
    def create(
        cls,
        world_size: int,
        generation: int,
        *,
        tray_bytes: int = TRAY_BYTES,
        direct_bytes: int = DIRECT_BYTES,
    ) -> SharedSegment:
        """Of a new generation. Raises ConfigError for more ranks than fit, OSError where the
        system has no memory without a name."""
        if not 1 <= world_size <= MAX_RANKS:
            raise ConfigError(
                f"{world_size} ranks cannot share a segment; use 1 to {MAX_RANKS} on one host",
                param="tensor_parallel_size",
            )
        if tray_bytes % mmap.PAGESIZE:
            raise ValueError(f"a tray of {tray_bytes} bytes; needed: whole pages")
        facts = MemoryFacts(_MAGIC, generation, world_size)
        num_bytes = _HEADER_BYTES + 2 * world_size * tray_bytes
        return cls(NamelessMemory.create("ranks", facts, num_bytes, (tray_bytes, direct_bytes)))

    @classmethod
    def attach(cls, fd: int, *, world_size: int, generation: int) -> SharedSegment:
        """As NamelessMemory.attach."""
        return cls(NamelessMemory.attach(fd, MemoryFacts(_MAGIC, generation, world_size)))

    @property
    def fd(self) -> int:
        """To be inherited; stays open until `close`."""
        return self.memory.fd

    @property
    def lost(self) -> tuple[int, ...]:
        """Ranks that were given up; any at all end the group."""
        return tuple(rank for rank in range(self.world_size) if self.memory.view[_LOST_AT + rank])

    def give_up(self, rank: int) -> None:
        """For whoever has seen that rank end: nobody waits for it, or calls anything, any more.
        Nothing after `close`: then nobody is left who could wait."""
        if not self.memory.is_closed:
            self.memory.view[_LOST_AT + rank] = 1

    def address(self) -> int:
        """Of the first byte, until `close`."""
        return self.memory.address()

    def tray_address(self, rank: int) -> int:
        """Of the tray of its even phases, until `close`."""
        return self.address() + _HEADER_BYTES + 2 * rank * self.tray_bytes

    def close(self) -> None:
        """Idempotent. Nobody may be in a call."""
        self.memory.close()
