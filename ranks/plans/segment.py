"""The shared memory of a group's plans: made by the conductor, fetched by the ranks of its host.

It has no name in any file system: a group that is killed leaves nothing behind. One generation has
one segment. `native/plan_ring.h` says what lies where.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct

from cluster.errors import WrongGeneration
from ranks.plans.plan import RankSign

RING_BYTES = 4 << 20
"""Some hundred steps of decodes, or ten of the largest prompts: no rank is so far behind."""

_HEADER_BYTES = 4096
_LINES_AT, _LINE_BYTES = 256, 128
_BEAT_AT = 16
_MAGIC = 0x53504C4954504C4E
_FACTS = struct.Struct("<QQQQ")  # magic, generation, num_ranks, ring_bytes
_LINE = struct.Struct("<QQQQ")  # bytes taken, plans taken, beat, waited_ns


class PlanSegment:
    """One process's view of it."""

    def __init__(self, fd: int) -> None:
        """Maps what `create` or `attach` has checked; `fd` belongs to the segment from here on."""
        self.fd = fd
        self.memory = mmap.mmap(fd, 0, mmap.MAP_SHARED)
        facts: tuple[int, ...] = _FACTS.unpack_from(self.memory)
        _, self.generation, self.world_size, self.ring_bytes = facts

    @classmethod
    def create(
        cls, world_size: int, generation: int, *, ring_bytes: int = RING_BYTES
    ) -> PlanSegment:
        """Of a new generation. Raises OSError where the system has no memory without a name."""
        if ring_bytes % mmap.PAGESIZE:
            raise ValueError(f"a ring of {ring_bytes} bytes; needed: whole pages")
        fd = os.memfd_create(
            f"splitserve-plans-{generation}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        )
        os.ftruncate(fd, _HEADER_BYTES + ring_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        os.pwrite(fd, _FACTS.pack(_MAGIC, generation, world_size, ring_bytes), 0)
        return cls(fd)

    @classmethod
    def attach(cls, fd: int, *, world_size: int, generation: int) -> PlanSegment:
        """That of a group that this rank was started for. Takes `fd` over.

        Raises WrongGeneration for any other.
        """
        found = os.pread(fd, _FACTS.size, 0).ljust(_FACTS.size, b"\0")
        magic, theirs, num_ranks, _ = _FACTS.unpack(found)
        if (magic, theirs, num_ranks) == (_MAGIC, generation, world_size):
            return cls(fd)
        os.close(fd)
        raise WrongGeneration(
            f"this rank is of generation {generation} with {world_size} ranks; the plans are "
            + (f"of generation {theirs} with {num_ranks}" if magic == _MAGIC else "of no group")
            + "; the rank must be started anew"
        )

    def address(self) -> int:
        """Of the first byte, until `close`."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def beat_address(self, rank: int) -> int:
        """Of a rank's beat, uint64: nanoseconds of CLOCK_MONOTONIC."""
        return self.address() + _line_at(rank) + _BEAT_AT

    def sign_of(self, rank: int) -> RankSign:
        """What a rank shows."""
        _, num_plans, beat_ns, waited_ns = _LINE.unpack_from(self.memory, _line_at(rank))
        return RankSign(num_plans=num_plans, beat_ns=beat_ns, waited_s=waited_ns / 1e9)

    def close(self) -> None:
        """Idempotent. Nobody may be in a call."""
        if not self.memory.closed:
            self.memory.close()
            os.close(self.fd)


def _line_at(rank: int) -> int:
    return _LINES_AT + rank * _LINE_BYTES
