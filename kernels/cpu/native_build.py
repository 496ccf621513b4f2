"""C++ sources -> one shared library, by the compiler of this machine."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_log = logging.getLogger("splitserve.kernels")

_COMMAND_TIMEOUT_S: Final = 300


class BuildFailed(Exception):
    """Says which command failed and why."""


def build(compiler: str, flags: Sequence[str], sources: Sequence[Path], target: Path) -> None:
    """Makes `target`, whose folder is made too; a process that finds another at it waits for it.

    Raises BuildFailed, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone_in(target.parent):
        if target.exists():
            return
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / target.name
            _link(compiler, flags, _compile_all(compiler, flags, sources, Path(folder)), built)
            built.replace(target)
        _log.info("built the CPU kernels in %.1f s: %s", time.monotonic() - started, target)


def _compile_all(
    compiler: str, flags: Sequence[str], sources: Sequence[Path], folder: Path
) -> list[Path]:
    """The largest sources first: they take longest."""
    ordered = sorted(sources, key=lambda source: source.stat().st_size, reverse=True)

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        _run([compiler, *flags, "-c", str(source), "-o", str(made)])
        return made

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(compile_one, ordered))


def _link(compiler: str, flags: Sequence[str], objects: Sequence[Path], target: Path) -> None:
    _run([compiler, *flags, "-shared", *map(str, objects), "-o", str(target)])


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        raise BuildFailed(f"{command[0]} failed: {_cause(error.stderr)}") from error
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{command[0]} took over {_COMMAND_TIMEOUT_S} s") from error


def _cause(output: bytes) -> str:
    """The first line that speaks of an error, else the last one."""
    lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
    return next((line for line in lines if "error" in line), lines[-1])


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Holds the folder against other processes; the lock ends with the process at the latest."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
