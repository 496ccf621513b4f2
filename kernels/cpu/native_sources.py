"""C++ that may use AVX-512, as a library of this process: anybody's folder of sources.

    <folder>/<digest of sources, flags and compiler>.so    built where it is not there yet
    <folder of sources>/../built/<digest of sources and flags>.so    what an image has brought along

A build that was ended goes on where it was. What was brought along needs no compiler here.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Collection, Sequence
from itertools import combinations
from pathlib import Path

from kernels.cpu.native_build import BuildFailed, Report, build

_NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vbmi", "avx512_bf16")
_OPTIONAL = {"avx512_vnni": "-mavx512vnni"}
"""What some kernels need, and its option; without it they are left out of the library."""
_MACHINE = "x86_64"
_FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-pthread",
    "-mfma",
    *(f"-m{flag.replace('_', '')}" for flag in _NEEDED),
)


class NativeUnavailable(Exception):
    """Why a library cannot be had here."""


def load_sources(sources: Path, folder: Path, report: Report = lambda _: None) -> ctypes.CDLL:
    """A library of all C++ files in the folder `sources`, which may use AVX-512: the one that was
    brought along, or one in `folder`, built there unless it is there already. Raises
    NativeUnavailable."""
    present = _cpu_flags()
    missing = [flag for flag in _NEEDED if flag not in present]
    if missing:
        raise NativeUnavailable(f"this CPU lacks {', '.join(missing)}")
    path = _brought_along(sources, _flags(present))
    if not path.exists():
        path = _built_here(sources, folder, report)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailable(f"{path} cannot be loaded ({error}); delete it") from error


def bring_along(sources: Path) -> list[Path]:
    """Builds what any CPU that has AVX-512 may want of `sources`, for images whose machines have no
    compiler; it asks nothing of the CPU that is here. Nothing on machines of another architecture,
    none of whose CPUs has AVX-512. Raises NativeUnavailable."""
    if platform.machine() != _MACHINE:
        return []
    compiler = _compiler()
    variants = [
        _flags({*_NEEDED, *chosen})
        for count in range(len(_OPTIONAL) + 1)
        for chosen in combinations(_OPTIONAL, count)
    ]
    paths = [_brought_along(sources, flags) for flags in variants]
    for flags, path in zip(variants, paths, strict=True):
        _build(compiler, flags, sources, path)
        path.with_suffix(".lock").unlink(missing_ok=True)
    return paths


def _brought_along(sources: Path, flags: Sequence[str]) -> Path:
    return sources.parent / "built" / f"{_digest(sources, repr(flags).encode())}.so"


def _built_here(sources: Path, folder: Path, report: Report) -> Path:
    compiler, flags = _compiler(), _flags(_cpu_flags())
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
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise NativeUnavailable("no C++ compiler is installed (g++ 10 or later, or clang++ 11)")


def _flags(present: Collection[str]) -> tuple[str, ...]:
    """For a CPU with these features: of the build, and a part of the digest."""
    return (*_FLAGS, *(option for flag, option in _OPTIONAL.items() if flag in present))


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
