"""The kernels' native library: built from `native/` on first use, called by ctypes.

`open_library` is told the folder by whoever asks for a set of kernels; from then on the library is
there for the whole process. Two free cores compile for 20 to 60 seconds, busy ones for minutes,
once per machine and version. Where it is impossible (a CPU of no level of `levels.py`, no compiler,
no folder to write to) one line of log says why, and torch does the work.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
from pathlib import Path

from kernels.cpu.levels import Level
from kernels.cpu.native_build import Report
from kernels.cpu.native_sources import NativeLibrary, NativeUnavailable, load_sources

_log = logging.getLogger("splitserve.kernels")

_SOURCES = Path(__file__).parent / "native"
_INT, _LONG, _FLOAT, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[type, ...]] = {
    "splitserve_linear": (
        *(_INT, _INT, _POINTER, _LONG, _LONG, _LONG),
        *(_POINTER, _LONG, _POINTER, _POINTER, _LONG, _INT),
    ),
    "splitserve_rms_norm": (
        *(_INT, _POINTER, _POINTER, _POINTER, _FLOAT, _LONG, _LONG, _POINTER, _INT),
    ),
    "splitserve_gated_mul": (_INT, _INT, _POINTER, _LONG, _LONG, _POINTER, _INT),
    "splitserve_sigmoid": (_POINTER, _LONG, _POINTER),
    "splitserve_head_norm": (
        *(_INT, _POINTER, _POINTER, _POINTER, _FLOAT, _LONG, _LONG, _LONG, _LONG, _INT),
    ),
    "splitserve_rope_write_kv": (
        *(_INT, _INT, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER),
        *(_LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _INT),
    ),
    "splitserve_paged_attention": (
        *(_INT, _INT, _POINTER, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER),
        *(_LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _FLOAT, _LONG, _POINTER, _INT),
    ),
    "splitserve_row_argmax": (
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _INT),
    ),
    "splitserve_mask_logits": (_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _INT),
    "splitserve_row_depths": (
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _INT),
    ),
    "splitserve_row_masses": (_POINTER, _LONG, _LONG, _POINTER, _INT),
    "splitserve_nucleus_floors": (
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _POINTER, _INT),
    ),
    "splitserve_race": (
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _POINTER),
        *(_POINTER, _POINTER, _INT),
    ),
    "splitserve_add_adapters": (
        *(_INT, _POINTER, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _LONG),
        *(_POINTER, _POINTER, _LONG, _INT),
    ),
    "splitserve_run_program": (_POINTER, _POINTER),
    "splitserve_latent_attention": (
        *(_INT, _INT, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _LONG, _LONG),
        *(_LONG, _LONG, _LONG, _LONG, _FLOAT, _POINTER, _INT),
    ),
    "splitserve_head_linear": (
        *(_INT, _POINTER, _LONG, _LONG, _LONG, _LONG, _LONG, _POINTER),
        *(_LONG, _POINTER, _LONG, _LONG, _INT),
    ),
    "splitserve_write_latent": (
        *(_INT, _POINTER, _POINTER, _LONG, _POINTER, _FLOAT, _POINTER, _POINTER, _POINTER),
        *(_POINTER, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _INT),
    ),
    "splitserve_block_digest": (_POINTER, _LONG, _POINTER, _LONG, _LONG, _POINTER, _POINTER),
}
_OPTIONAL_SIGNATURES: dict[str, tuple[type, ...]] = {
    "splitserve_grouped_linear": (_INT, _INT, _POINTER, _LONG, _POINTER, _POINTER, _LONG, _INT),
    "splitserve_grouped_rows": (_POINTER, _POINTER, _LONG, _POINTER, _INT),
}

_opened: NativeLibrary | None = None


@functools.cache
def open_library(folder: Path) -> NativeLibrary | None:
    """The library from `folder`, built where it is not there yet; None, after one line of log,
    where it cannot be."""
    global _opened
    try:
        _opened = library = load_library(folder)
    except NativeUnavailable as reason:
        _log.warning("CPU kernels run on torch, several times slower: %s", reason)
        return None
    return library


def native_library() -> NativeLibrary | None:
    """What this process has opened. None: nobody has asked for kernels of a CPU, or they cannot be
    had here. Builds nothing, so that no request waits for it; any thread may ask."""
    return _opened


def prepare_library(folder: Path, report: Report) -> None:
    """Builds what `open_library` will load, telling how far it is; nothing where it cannot."""
    with contextlib.suppress(NativeUnavailable):
        load_library(folder, report)


def load_library(
    folder: Path, report: Report = lambda _: None, *, level: Level | None = None
) -> NativeLibrary:
    """The kernels for `level`, or the best that this CPU has, built into `folder` unless they are
    there. Raises NativeUnavailable."""
    library = load_sources(_SOURCES, folder, report, level=level)
    built = {name: args for name, args in _OPTIONAL_SIGNATURES.items() if hasattr(library, name)}
    for name, arguments in (_SIGNATURES | built).items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    return library
