"""What the C library does with memory that a router has freed: gives it back to the machine.

Of itself it learns from what is freed: after the first block of 8 MB such blocks come from its own
heaps, which keep them. An engine wants just that: engine/process/memory_habits.py.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 256 * 1024
_SPARE_BYTES = 16 * 1024 * 1024
_ARENAS = 4


def give_back_freed_memory() -> None:
    """What a crowd of large messages took is the machine's again once they are gone: each large
    one is a block of its own. glibc only; elsewhere nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)
