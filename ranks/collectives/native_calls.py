"""The native library of the collectives: built from `native/` on first use, called by ctypes.

As the kernels' own, in the same folder: a compile of seconds.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

import torch

from cluster.home import kernels_folder
from kernels.cpu.levels import Level
from kernels.cpu.native_sources import load_sources

_SOURCES = Path(__file__).parent / "native"
_INT, _LONG, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[type, ...]] = {
    "splitserve_join": (_POINTER,),
    "splitserve_meet": (_POINTER,),
    "splitserve_all_reduce": (_POINTER, _INT, _POINTER, _POINTER, _LONG),
    "splitserve_reduce_scatter": (_POINTER, _INT, _POINTER, _POINTER, _POINTER),
    "splitserve_all_gather": (_POINTER, _POINTER, _LONG, _POINTER, _POINTER),
    "splitserve_gather": (_POINTER, _LONG, _POINTER, _LONG, _LONG, _POINTER),
    "splitserve_broadcast": (_POINTER, _LONG, _POINTER, _LONG),
    "splitserve_all_to_all": (_POINTER, _POINTER, _LONG, _POINTER, _POINTER),
}
DONE, LOST, DIFFERENT_CALL, TAKEN = range(4)
"""Outcomes, as in native/meet.h."""
VALUE_TYPES: Final = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""As in native/lanes.h."""


class RankViewRecord(ctypes.Structure):
    """One rank's view of the segment, as in native/segment.h."""

    _fields_ = (
        ("segment", _POINTER),
        ("rank", _LONG),
        ("num_ranks", _LONG),
        ("tray_bytes", _LONG),
        ("direct_bytes", _LONG),
        ("deadline_ns", _LONG),
        ("phase", ctypes.c_uint64),
        ("waited_ns", _LONG),
        ("beat_ns", _POINTER),
        ("called_since_ns", _LONG),
        ("called_ns", _LONG),
    )


def load_collectives(level: Level | None = None) -> ctypes.CDLL:
    """For that level, or the best that this CPU has; built where it is not there. Raises
    NativeUnavailable."""
    library = load_sources(_SOURCES, kernels_folder(), level=level)
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _INT
    return library


def address_of(function: Any) -> int:
    """Of a function of the library, for other native code."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def longs(values: list[int]) -> ctypes.Array[ctypes.c_int64]:
    """To be passed where the library reads them."""
    return (_LONG * len(values))(*values)
