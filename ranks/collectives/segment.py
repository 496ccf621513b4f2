"""The shared memory of a group: made once by whoever starts the ranks, inherited by descriptor.

    parent   SharedSegment.create(...)  -> its descriptor goes to the ranks (pass_fds, SCM_RIGHTS)
    rank     SharedSegment.attach(fd, ...)  -> SharedMemoryCollective
    anybody  give_up(rank): all who wait, and all who come, get RankLost within about a millisecond
    all      close(); the kernel takes the memory back with the last one that had it

It has no name in any file system: a group that is killed leaves nothing behind. One generation has
one segment, and a group that lost a rank never uses its own again.
`native/segment.h` says what lies where.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct

from cluster.errors import ConfigError, WrongGeneration

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

_MFD_NOEXEC_SEAL = 8
_HEADER_BYTES = 4096
_LOST_AT = 128
_MAGIC = 0x53504C4954524E4B
_FACTS = struct.Struct("<QQQQQ")  # magic, generation, num_ranks, tray_bytes, direct_bytes


class SharedSegment:
    """One process's view of it."""

    def __init__(self, fd: int) -> None:
        """Maps what `create` or `attach` has checked; `fd` belongs to the segment from here on."""
        self._fd = fd
        self.memory = mmap.mmap(fd, 0, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        facts: tuple[int, ...] = _FACTS.unpack_from(self.memory)
        _, self.generation, self.world_size, self.tray_bytes, self.direct_bytes = facts

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
        fd = _nameless(f"splitserve-ranks-{generation}")
        os.ftruncate(fd, _HEADER_BYTES + 2 * world_size * tray_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        os.pwrite(fd, _FACTS.pack(_MAGIC, generation, world_size, tray_bytes, direct_bytes), 0)
        return cls(fd)

    @classmethod
    def attach(cls, fd: int, *, world_size: int, generation: int) -> SharedSegment:
        """That of a group that this rank was started for.

        Raises WrongGeneration for any other; `fd` is then closed.
        """
        found = os.pread(fd, _FACTS.size, 0).ljust(_FACTS.size, b"\0")
        magic, theirs, num_ranks, *_ = _FACTS.unpack(found)
        if (magic, theirs, num_ranks) == (_MAGIC, generation, world_size):
            return cls(fd)
        os.close(fd)
        raise WrongGeneration(
            f"this rank is of generation {generation} with {world_size} ranks; the segment is "
            + (f"of generation {theirs} with {num_ranks}" if magic == _MAGIC else "of no group")
            + "; the rank must be started anew"
        )

    @property
    def fd(self) -> int:
        """To be inherited; stays open until `close`."""
        return self._fd

    @property
    def lost(self) -> tuple[int, ...]:
        """Ranks that were given up; any at all end the group."""
        return tuple(rank for rank in range(self.world_size) if self.memory[_LOST_AT + rank])

    def give_up(self, rank: int) -> None:
        """For whoever has seen that rank end: nobody waits for it, or calls anything, any more.
        Nothing after `close`: then nobody is left who could wait."""
        if not self.memory.closed:
            self.memory[_LOST_AT + rank] = 1

    def address(self) -> int:
        """Of the first byte, until `close`."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def tray_address(self, rank: int) -> int:
        """Of the tray of its even phases, until `close`."""
        return self.address() + _HEADER_BYTES + 2 * rank * self.tray_bytes

    def close(self) -> None:
        """Idempotent. Nobody may be in a call."""
        if not self.memory.closed:
            self.memory.close()
            os.close(self._fd)


def _nameless(label: str) -> int:
    """Memory whose size can be sealed. Some systems refuse what could be executed; older ones do
    not know how to ask for the other kind."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(label, flags | _MFD_NOEXEC_SEAL)
    except OSError:
        return os.memfd_create(label, flags)
