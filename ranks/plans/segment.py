"""The shared memory of a group's plans: made by the conductor, fetched by the ranks of its host.

One generation has one segment. `native/plan_ring.h` says what lies where.
"""

from __future__ import annotations

import mmap
import struct

from ranks.nameless_memory import MemoryFacts, NamelessMemory
from ranks.plans.plan import RankSign

RING_BYTES = 4 << 20
"""Some hundred steps of decodes, or ten of the largest prompts: no rank is so far behind."""

_HEADER_BYTES = 4096
_LINES_AT, _LINE_BYTES = 256, 128
_BEAT_AT = 16
_MAGIC = 0x53504C4954504C4E
_LINE = struct.Struct("<QQQQQQ")  # bytes taken, plans taken, beat, waited, called, stepped_ns


class PlanSegment:
    """One process's view of it."""

    def __init__(self, memory: NamelessMemory) -> None:
        """Takes the memory over."""
        self.memory = memory
        _, self.generation, self.world_size = memory.facts
        (self.ring_bytes,) = memory.sizes(1)

    @classmethod
    def create(
        cls, world_size: int, generation: int, *, ring_bytes: int = RING_BYTES
    ) -> PlanSegment:
        """Of a new generation. Raises OSError where the system has no memory without a name."""
        if ring_bytes % mmap.PAGESIZE:
            raise ValueError(f"a ring of {ring_bytes} bytes; needed: whole pages")
        facts = MemoryFacts(_MAGIC, generation, world_size)
        num_bytes = _HEADER_BYTES + ring_bytes
        return cls(NamelessMemory.create("plans", facts, num_bytes, (ring_bytes,)))

    @classmethod
    def attach(cls, fd: int, *, world_size: int, generation: int) -> PlanSegment:
        """As NamelessMemory.attach."""
        return cls(NamelessMemory.attach(fd, MemoryFacts(_MAGIC, generation, world_size)))

    @property
    def fd(self) -> int:
        """For the ranks; stays open until `close`."""
        return self.memory.fd

    def address(self) -> int:
        """Of the first byte, until `close`."""
        return self.memory.address()

    def beat_address(self, rank: int) -> int:
        """Of a rank's beat, uint64: nanoseconds of CLOCK_MONOTONIC."""
        return self.address() + _line_at(rank) + _BEAT_AT

    def sign_of(self, rank: int) -> RankSign:
        """What a rank shows."""
        _, num_plans, beat_ns, *times_ns = _LINE.unpack_from(self.memory.view, _line_at(rank))
        waited_s, called_s, stepped_s = (time_ns / 1e9 for time_ns in times_ns)
        return RankSign(
            num_plans=num_plans,
            beat_ns=beat_ns,
            waited_s=waited_s,
            called_s=called_s,
            stepped_s=stepped_s,
        )

    def close(self) -> None:
        """Idempotent. Nobody may be in a call."""
        self.memory.close()


def _line_at(rank: int) -> int:
    return _LINES_AT + rank * _LINE_BYTES
