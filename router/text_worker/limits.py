"""Limits of a text worker that the kernel holds: no template and no library can outlive them."""

from __future__ import annotations

import resource
from pathlib import Path

import msgspec

BASE_MEMORY_BYTES = 1 << 30
MEMORY_PER_BODY_BYTE = 64
"""`[1],[1],...` takes 22 bytes for one while it is read; a token of a text some 150 for four."""
BASE_CPU_S = 4
"""A template that goes on is ended by its own budget after 2 s; this is for what that cannot
see: calls into C that never come back."""
BYTES_PER_CPU_S = 200_000
"""SmolLM2's tokenizer takes 0.7 s for a million characters on the busy 2-core machine."""


class TextLimits(msgspec.Struct, frozen=True):
    """What one task may take."""

    memory_bytes: int
    """Address space, on top of what is loaded."""
    cpu_s: int = BASE_CPU_S
    """Time on a core, so that a busy machine ends nobody; and a second for each 200 kB."""

    @classmethod
    def for_bodies_of(cls, max_body_bytes: int) -> TextLimits:
        """Enough for every body that the front lets in."""
        return cls(BASE_MEMORY_BYTES + MEMORY_PER_BODY_BYTE * max_body_bytes)

    def num_bytes(self, asked_bytes: int) -> int:
        """That may be worked on before the time is over which `hold_cpu` allows."""
        return self.cpu_s * BYTES_PER_CPU_S + asked_bytes

    def hold_memory(self) -> bool:
        """Once everything is loaded. A list or text over it is a MemoryError; where a library
        cannot raise one, the process ends.

        A tighter limit that was there before stays. False, and no limit, where the system does not
        say how much is in use (no /proc) or sets none.
        """
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + self.memory_bytes
            limit = _at_most(limit, resource.getrlimit(resource.RLIMIT_AS)[1])
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        except (OSError, ValueError):
            return False
        return True

    def hold_cpu(self, num_bytes: int) -> None:
        """From now on, for work on so many bytes; SIGXCPU ends the process after it."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        allowed_s = self.cpu_s + num_bytes // BYTES_PER_CPU_S
        soft = int(used.ru_utime + used.ru_stime) + 1 + allowed_s
        resource.setrlimit(resource.RLIMIT_CPU, (_at_most(soft, hard), hard))


def _at_most(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
