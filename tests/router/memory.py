"""What a process holds of messages and bodies: as Python sees it, and as the C library does."""

from __future__ import annotations

import ctypes
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _MallInfo(ctypes.Structure):
    """Of mallinfo2(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated_bytes() -> int | None:
    """All that malloc has given out, in heaps and in blocks of their own; None without glibc."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return None
    mallinfo2.restype = _MallInfo
    info = mallinfo2()
    return int(info.uordblks) + int(info.hblkhd)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Asked within: the bytes of all that Python has allocated since and not freed, whoever holds
    it."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
