"""The native library of the plans: built from `native/` on first use, called by ctypes.

As the collectives' own, in the same folder.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from cluster.home import kernels_folder
from kernels.cpu.native_sources import load_sources

_SOURCES = Path(__file__).parent / "native"
_LONG, _POINTER, _WORD = ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint32
_SIGNATURES: dict[str, tuple[type, ...]] = {
    "splitserve_write_plan": (_POINTER, _WORD, ctypes.c_int32, ctypes.c_char_p, _LONG, _LONG),
    "splitserve_read_plan": (_POINTER, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER),
    "splitserve_end_plans": (_POINTER,),
}
DONE, NOTHING, LOST, BROKEN = range(4)
"""Outcomes, as in native/plan_ring.h."""


class PlanViewRecord(ctypes.Structure):
    """One process's view of the segment, as in native/plan_ring.h."""

    _fields_ = (
        ("segment", _POINTER),
        ("rank", _LONG),
        ("num_ranks", _LONG),
        ("ring_bytes", _LONG),
        ("generation", ctypes.c_uint64),
        ("position", ctypes.c_uint64),
        ("sequence", ctypes.c_uint64),
        ("waited_ns", ctypes.c_uint64),
        ("called_ns", ctypes.c_uint64),
        ("stepped_ns", ctypes.c_uint64),
    )


def load_plans() -> ctypes.CDLL:
    """Built where it is not there. Raises NativeUnavailable."""
    library = load_sources(_SOURCES, kernels_folder())
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int32
    return library
