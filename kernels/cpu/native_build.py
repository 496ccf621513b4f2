"""C++ sources -> one shared library, by the compiler of this machine."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

from kernels.cpu.team import TEAM

_log = logging.getLogger("splitserve.kernels")

_COMMAND_TIMEOUT_S: Final = 900
_MOST_COMPILERS: Final = 4
"""At once, whatever the cores: each takes memory, of which a container may have little."""
_LOCK_LOOK_S: Final = 0.5
_REPORT_S: Final = 10.0
"""At the latest: of a slow core one file may take minutes."""


class BuildFailed(Exception):
    """Says which command failed and why."""


Report = Callable[[float], None]
"""Told the fraction that is done, more than once a minute on any machine."""


def build(
    compiler: str,
    flags: Sequence[str],
    sources: Sequence[Path],
    target: Path,
    report: Report = lambda _: None,
) -> None:
    """Makes `target`, whose folder is made too; a process that finds another at it waits for it.

    Raises BuildFailed, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone_at(target.with_suffix(".lock"), report):
        if target.exists():
            return
        started = time.monotonic()
        folder = target.with_suffix(".objects")
        folder.mkdir(exist_ok=True)
        built = folder / target.name
        try:
            objects = _compile_all(compiler, flags, sources, folder, report)
            _link(compiler, flags, objects, built)
            built.replace(target)
        finally:  # what is left after a kill is used by the next build
            shutil.rmtree(folder, ignore_errors=True)
        _log.info("built the CPU kernels in %.1f s: %s", time.monotonic() - started, target)


def _compile_all(
    compiler: str, flags: Sequence[str], sources: Sequence[Path], folder: Path, report: Report
) -> list[Path]:
    """The largest sources first: they take longest. What a build that was ended had made is used:
    an object bears its name only once it is whole."""
    ordered = sorted(sources, key=lambda source: source.stat().st_size, reverse=True)

    def compile_one(source: Path) -> Path:
        made, part = folder / f"{source.stem}.o", folder / f"{source.stem}.part.o"
        if not made.exists():
            _run([compiler, *flags, "-c", str(source), "-o", str(part)])
            part.replace(made)
            _log.info("compiled %s", source.name)
        return made

    with ThreadPoolExecutor(max_workers=min(_MOST_COMPILERS, TEAM.num_threads)) as pool:
        compiling = [pool.submit(compile_one, source) for source in ordered]
        try:
            _tell_how_many(compiling, report)
        finally:
            pool.shutdown(cancel_futures=True)
        return [each.result() for each in compiling]


def _tell_how_many(compiling: Sequence[Future[Path]], report: Report) -> None:
    """Until none is under way; after the first that fails none is begun. Raises what that raised,
    once the others are done: nobody takes that time for silence."""
    left, failure = set(compiling), None
    while left:
        done, left = wait(left, _REPORT_S, FIRST_COMPLETED)
        for each in done:
            failure = failure or (None if each.cancelled() else each.exception())
        if failure is not None:
            left = {each for each in left if not each.cancel()}
        report(1 - len(left) / len(compiling))
    if failure is not None:
        raise failure


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
def _alone_at(path: Path, report: Report) -> Iterator[None]:
    """Holds a file against other processes; the lock ends with the process at the latest.

    A file that is open for writing, since a home on NFS locks no other, and no folder.
    """

    def go_on_waiting() -> bool:
        report(0.0)
        return False

    lock = FileLock(path, poll_interval=_LOCK_LOOK_S)
    lock.acquire(cancel_check=go_on_waiting)
    try:
        yield
    finally:
        lock.release()
