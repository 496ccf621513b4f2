"""C++ with vector instructions, as a library of this process: anybody's folder of sources.

    <folder>/<digest of sources, flags and compiler>.so    built where it is not there yet
    <folder of sources>/../built/<digest of sources and flags>.so    what an image has brought along

It is compiled for a level of instructions (`levels.py`), the best that this CPU has. A build that
was ended goes on where it was. What was brought along needs no compiler here.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from kernels.cpu.levels import LEVELS, Level, levels_of
from kernels.cpu.native_build import BuildFailed, Report, build

COMPILERS = ("g++", "clang++", "c++")
"""After the one that the environment's CXX names."""
_MACHINE = "x86_64"
"""The only architecture that has any of the levels."""


class NativeUnavailable(Exception):
    """Why a library cannot be had here."""


class NativeLibrary(ctypes.CDLL):
    """A library, and the level that it was compiled for."""

    def __init__(self, path: Path, level: Level) -> None:
        super().__init__(str(path))
        self.level = level


def load_sources(
    sources: Path, folder: Path, report: Report = lambda _: None, *, level: Level | None = None
) -> NativeLibrary:
    """A library of all C++ files in the folder `sources`, for `level` or the best that this CPU
    has: the one that was brought along, or one in `folder`, built there unless it is there already.
    Raises NativeUnavailable."""
    present = _cpu_flags()
    chosen = _level_for(present, level)
    flags = chosen.options_for(present)
    path = _brought_along(sources, flags)
    if not path.exists():
        path = _built_here(sources, flags, folder, report)
    try:
        return NativeLibrary(path, chosen)
    except OSError as error:
        raise NativeUnavailable(f"{path} cannot be loaded ({error}); delete it") from error


def own_levels() -> list[Level]:
    """Of this CPU, the best first."""
    return levels_of(_cpu_flags())


def bring_along(sources: Path) -> list[Path]:
    """Builds what any CPU of any level may want of `sources`, for images whose machines have no
    compiler; it asks nothing of the CPU that is here. Nothing on machines of another architecture,
    none of whose CPUs has a level. Raises NativeUnavailable."""
    if platform.machine() != _MACHINE:
        return []
    compiler = _compiler()
    variants = [flags for level in LEVELS for flags in level.variants()]
    paths = [_brought_along(sources, flags) for flags in variants]
    for flags, path in zip(variants, paths, strict=True):
        _build(compiler, flags, sources, path)
        path.with_suffix(".lock").unlink(missing_ok=True)
    return paths


def _level_for(present: Collection[str], wanted: Level | None) -> Level:
    """A CPU without any is told what it lacks of the least."""
    if wanted is None:
        wanted = next(iter(levels_of(present)), LEVELS[-1])
    lacking = wanted.lacking(present)
    if lacking:
        raise NativeUnavailable(f"this CPU lacks {', '.join(lacking)}")
    return wanted


def _brought_along(sources: Path, flags: Sequence[str]) -> Path:
    return sources.parent / "built" / f"{_digest(sources, repr(flags).encode())}.so"


def _built_here(sources: Path, flags: Sequence[str], folder: Path, report: Report) -> Path:
    compiler = _compiler()
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=60, check=False)
    path = folder / f"{_digest(sources, repr((flags, version.stdout)).encode())}.so"
    if not path.exists():
        _build(compiler, flags, sources, path, report)
    return path


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def _compiler() -> str:
    for name in (os.environ.get("CXX"), *COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise NativeUnavailable("no C++ compiler is installed (g++ 10 or later, or clang++ 11)")


def _digest(sources: Path, made_by: bytes) -> str:
    digest = hashlib.sha256(made_by)
    for path in sorted(sources.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _build(
    compiler: str,
    flags: Sequence[str],
    sources: Path,
    target: Path,
    report: Report = lambda _: None,
) -> None:
    try:
        build(compiler, flags, sorted(sources.glob("*.cpp")), target, report)
    except BuildFailed as error:
        raise NativeUnavailable(str(error)) from error
    except OSError as error:
        raise NativeUnavailable(f"{target.parent} cannot be written ({error})") from error
