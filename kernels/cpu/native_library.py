"""The AVX-512 library: compiled from `native/` on first use, kept in a folder, called by ctypes.

    <folder>/<digest of sources, flags and compiler>.so

`open_library` is told the folder by whoever asks for a set of kernels; from then on the library is
there for the whole process. Two free cores compile for about 20 seconds, busy ones for minutes,
once per machine and version; a build that was ended goes on where it was. Where it is impossible
(no AVX-512 BF16, no compiler, no folder to write to) one line of log says why, and torch does the
work.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
from pathlib import Path

from kernels.cpu.native_build import BuildFailed, Report, build

_log = logging.getLogger("splitserve.kernels")

_SOURCES = Path(__file__).parent / "native"
_NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vbmi", "avx512_bf16")
_OPTIONAL = {"avx512_vnni": "-mavx512vnni"}
"""What some kernels need, and its option; without it they are left out of the library."""
_FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-pthread",
    "-mfma",
    *(f"-m{flag.replace('_', '')}" for flag in _NEEDED),
)

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
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _INT),
    ),
    "splitserve_row_depths": (
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _LONG, _INT),
    ),
    "splitserve_block_masses": (
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER),
        _INT,
    ),
    "splitserve_nucleus_floors": (
        *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER),
        _INT,
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
    "splitserve_grouped_linear": (_INT, _INT, _POINTER, _LONG, _POINTER, _POINTER, _INT),
    "splitserve_grouped_rows": (_POINTER, _POINTER, _LONG, _POINTER, _INT),
}


_opened: ctypes.CDLL | None = None


class NativeUnavailable(Exception):
    """Why the library cannot be had here."""


@functools.cache
def open_library(folder: Path) -> ctypes.CDLL | None:
    """The library from `folder`, built where it is not there yet; None, after one line of log,
    where it cannot be."""
    global _opened
    try:
        _opened = library = load_library(folder)
    except NativeUnavailable as reason:
        _log.warning("CPU kernels run on torch, several times slower: %s", reason)
        return None
    return library


def native_library() -> ctypes.CDLL | None:
    """What this process has opened. None: nobody has asked for kernels of a CPU, or they cannot be
    had here. Builds nothing, so that no request waits for it; any thread may ask."""
    return _opened


def prepare_library(folder: Path, report: Report) -> None:
    """Builds what `open_library` will load, telling how far it is; nothing where it cannot."""
    with contextlib.suppress(NativeUnavailable):
        load_library(folder, report)


def load_library(folder: Path, report: Report = lambda _: None) -> ctypes.CDLL:
    """The kernels, built into `folder` unless they are there. Raises NativeUnavailable."""
    library = load_sources(_SOURCES, folder, report)
    built = {name: args for name, args in _OPTIONAL_SIGNATURES.items() if hasattr(library, name)}
    for name, arguments in (_SIGNATURES | built).items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    return library


def load_sources(sources: Path, folder: Path, report: Report = lambda _: None) -> ctypes.CDLL:
    """A library of all C++ files in the folder `sources`, which may use AVX-512; built into
    `folder` unless it is there already. Raises NativeUnavailable."""
    missing = [flag for flag in _NEEDED if flag not in _cpu_flags()]
    if missing:
        raise NativeUnavailable(f"this CPU lacks {', '.join(missing)}")
    compiler = _compiler()
    path = folder / f"{_digest(compiler, sources)}.so"
    if not path.exists():
        _build(compiler, sources, path, report)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailable(f"{path} cannot be loaded ({error}); delete it") from error


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise NativeUnavailable("no C++ compiler is installed (g++ 10 or later, or clang++ 11)")


def _flags() -> tuple[str, ...]:
    """For this CPU: of the build, and a part of the digest."""
    present = _cpu_flags()
    return (*_FLAGS, *(option for flag, option in _OPTIONAL.items() if flag in present))


def _digest(compiler: str, sources: Path) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=60, check=False)
    digest = hashlib.sha256(repr((_flags(), version.stdout)).encode())
    for path in sorted(sources.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _build(compiler: str, sources: Path, target: Path, report: Report) -> None:
    try:
        build(compiler, _flags(), list(sources.glob("*.cpp")), target, report)
    except BuildFailed as error:
        raise NativeUnavailable(str(error)) from error
    except OSError as error:
        raise NativeUnavailable(f"{target.parent} cannot be written ({error})") from error
