"""Processor time of a process: a long step uses it, one that stands still does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")


def cpu_ticks(pid: int, proc: Path = _PROC) -> int | None:
    """Processor time that the main thread of `pid` and the processes it has started used so far.

    In clock ticks, most often 10 ms. None when the kernel does not tell. Other threads do not
    count: they may poll for ever beside a main thread that stands still.
    """
    try:
        ticks = _ticks_in(proc / f"{pid}/task/{pid}/stat")
    except (OSError, ValueError):
        return None
    for child in _descendants(pid, proc):
        try:
            ticks += _ticks_in(proc / f"{child}/stat")
        except (OSError, ValueError):  # it has just ended
            continue
    return ticks


def _ticks_in(stat: Path) -> int:
    """User and system time; the name before them may hold blanks and brackets."""
    fields = stat.read_text().rpartition(")")[2].split()
    if len(fields) < 13:
        raise ValueError(f"{stat} has another form")
    return int(fields[11]) + int(fields[12])


def _descendants(pid: int, proc: Path) -> Iterator[int]:
    try:
        children = (proc / f"{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it ended, or the kernel was built without this file
        return
    for child in map(int, children):
        yield child
        yield from _descendants(child, proc)
