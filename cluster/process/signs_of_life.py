"""Whether a process works, as the kernel sees it: nobody inside it has to say so.

    stopped (T)                                nothing goes on, whatever its children do
    a thread runs or could (R)                 it works, or others have its cores
    a thread waits for a device (D)            a page comes back, a file is read
    ticks of processor since the look before   it worked in between
    none of these                              it stands still

All threads count, and the processes that any of them has started: a main thread may do nothing but
wait for them, as for a team that computes or for a compiler. A thread that polls beside one that
stands still looks like work; whoever judges by this has a second, longer limit for that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STOPPED = "Tt"
_BUSY = "RD"
_MAX_STAT_BYTES = 64 * 1024
TICKS_OF_WORK = 2
"""Between two looks. One is none: threads of NIXL and UCX that wake up ten times a second have one
every few seconds. A main thread that sleeps beside two idle NIXL agents (limit 2 s) was found after
2.0 to 5.3 s with one tick as a sign, and after 2.0 s each of six times with two."""


@dataclass(frozen=True, slots=True)
class SignsOfLife:
    """Of one process and all that it has started, at one moment."""

    is_stopped: bool
    """The process itself: by SIGSTOP, or by a debugger."""
    is_busy: bool
    """Some thread runs, stands in line for a core, or waits for a device."""
    cpu_ticks: int
    """Used so far, by children that have ended, too; a tick is most often 10 ms."""

    @classmethod
    def of(cls, pid: int, proc: Path = _PROC, *, but: int | None = None) -> SignsOfLife | None:
        """None when the process is gone, or the kernel does not tell. `but`: a thread that does not
        count as busy, such as the one that asks about its own process."""
        try:
            state, ticks = _stat(proc / f"{pid}/stat")
        except (OSError, ValueError):
            return None
        is_busy = False
        for process in _family(pid, proc):
            threads = (each for each in _threads(process, proc) if each.name != str(but))
            is_busy = is_busy or any(map(_is_busy, threads))
            if process != pid:
                ticks += _ticks_of(process, proc)
        return cls(state in _STOPPED, is_busy, ticks)

    @classmethod
    def of_main_thread(cls, pid: int, proc: Path = _PROC) -> SignsOfLife | None:
        """Of that thread alone, where an event loop runs."""
        try:
            state, ticks = _stat(proc / f"{pid}/task/{pid}/stat")
        except (OSError, ValueError):
            return None
        return cls(state in _STOPPED, state in _BUSY, ticks)

    def are_held_up(self, before: SignsOfLife | None) -> bool:
        """It would run, but gets no core, or waits for a page or a file."""
        used = TICKS_OF_WORK if before is None else self.cpu_ticks - before.cpu_ticks
        return self.is_busy and used < TICKS_OF_WORK

    def show_work(self, before: SignsOfLife | None) -> bool:
        """`before`: of the look before this one, if there was one."""
        if self.is_stopped:
            return False
        used = 0 if before is None else self.cpu_ticks - before.cpu_ticks
        return self.is_busy or used >= TICKS_OF_WORK


def _stat(file: Path) -> tuple[str, int]:
    """State, and processor time with that of children that were waited for; the name before them
    may hold blanks and brackets."""
    fields = _read(file).rpartition(b")")[2].split()
    if len(fields) < 15:
        raise ValueError(f"{file} has another form")
    return fields[0].decode(), sum(map(int, fields[11:15]))


def _read(file: Path) -> bytes:
    """All of a small file of the kernel's. By `Path.read_text` a look at a process took half as
    long again, and a router looks at its text workers all the time."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return os.read(descriptor, _MAX_STAT_BYTES)
    finally:
        os.close(descriptor)


def _ticks_of(pid: int, proc: Path) -> int:
    try:
        return _stat(proc / f"{pid}/stat")[1]
    except (OSError, ValueError):  # it has just ended
        return 0


def _is_busy(thread: Path) -> bool:
    try:
        return _stat(thread / "stat")[0] in _BUSY
    except (OSError, ValueError):
        return False


def _threads(pid: int, proc: Path) -> list[Path]:
    try:
        return list((proc / f"{pid}/task").iterdir())
    except OSError:  # it has just ended
        return []


def _family(pid: int, proc: Path) -> Iterator[int]:
    """The process, what its threads have started, and so on."""
    yield pid
    for thread in _threads(pid, proc):
        try:
            children = _read(thread / "children").split()
        except OSError:  # it ended, or the kernel was built without this file
            continue
        for child in children:
            yield from _family(int(child), proc)
