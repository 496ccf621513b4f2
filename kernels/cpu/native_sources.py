"""C++ that may use AVX-512, as a library of this process: anybody's folder of sources.

    <folder>/<digest of sources, flags and compiler>.so

Built where it is not there yet; a build that was ended goes on where it was.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from kernels.cpu.native_build import BuildFailed, Report, build

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


class NativeUnavailable(Exception):
    """Why a library cannot be had here."""


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
