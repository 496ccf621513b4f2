"""What a process holds of messages and bodies: as Python sees it, and as the C library does."""

from __future__ import annotations

import ctypes
import gc

LARGE_BYTES = 1 << 20


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


def num_large_alive(*, but: bytes = b"") -> int:
    """Values of over a megabyte that anything tracked by the collector still holds."""
    held = {
        id(value)
        for holder in gc.get_objects()
        for value in gc.get_referents(holder)
        if type(value) in (bytes, bytearray, str) and len(value) > LARGE_BYTES
    }
    return len(held - {id(but)})
