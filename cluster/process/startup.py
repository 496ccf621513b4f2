"""How a child process tells its supervisor that it is loading, ready, alive, or cannot start.

JSON lines on the pipe whose descriptor stands in $SPLITSERVE_REPORT_FD:

    progress* , then ready | failed      a process that dies without either has crashed
    leaving                              no new requests are taken any more, and why
    alive, every second                  from the event loop: one that falls silent is stuck

Without the variable nothing is written: a process started by hand behaves the same. Nothing here
waits for a supervisor that does not read.
"""

from __future__ import annotations

import os

import msgspec

from cluster.deadline import Sleep
from cluster.errors import InternalError, SplitserveError, status_of

REPORT_FD = "SPLITSERVE_REPORT_FD"


class StartupProgress(msgspec.Struct, frozen=True, tag="progress"):
    """What the process is at; `fraction` is 0 to 1, or None when the end is not known."""

    phase: str
    fraction: float | None = None


class StartupReady(msgspec.Struct, frozen=True, tag="ready"):
    """Requests may come. `facts` are for the ready line: transport, dtype, blocks, ..."""

    address: str
    facts: dict[str, str] = {}


class StartupFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Why it cannot start: a stable code, and a message with cause and remedy."""

    code: str
    message: str


class Leaving(msgspec.Struct, frozen=True, tag="leaving"):
    """It takes no new requests any more, and will end: at once, or when those it has are done."""

    code: str = ""
    """Of the error that it ends by; empty: it was asked to."""


class StillAlive(msgspec.Struct, frozen=True, tag="alive"):
    """The event loop turns. No progress of a start."""


ProcessReport = StartupProgress | StartupReady | StartupFailed | Leaving | StillAlive
ALIVE_INTERVAL_S = 1.0
_DECODER = msgspec.json.Decoder(ProcessReport)


def report_progress(phase: str, fraction: float | None = None) -> None:
    """Tells the supervisor what is being waited for."""
    _send(StartupProgress(phase, fraction))


def report_ready(address: str, **facts: str) -> None:
    """Tells the supervisor that requests may come."""
    _send(StartupReady(address, facts))


def report_failed(error: SplitserveError) -> None:
    """Tells the supervisor why this process ends."""
    _send(StartupFailed(status_of(error).code, error.message))


def report_leaving(cause: BaseException | None = None) -> None:
    """Tells the supervisor that another process has to do this one's work. `cause`: what it ends
    by, told by its first typed cause; None: somebody has asked it to finish."""
    _send(Leaving("" if cause is None else _code_of(cause)))


async def report_life(sleep: Sleep) -> None:
    """Runs for as long as the process does."""
    while True:
        _send(StillAlive())
        await sleep(ALIVE_INTERVAL_S)


def parse_report(line: bytes) -> ProcessReport:
    """One line of the pipe. Raises msgspec.DecodeError for anything else."""
    report: ProcessReport = _DECODER.decode(line)
    return report


def _code_of(cause: BaseException) -> str:
    first = cause.__cause__ if isinstance(cause.__cause__, SplitserveError) else cause
    return status_of(first if isinstance(first, SplitserveError) else InternalError("")).code


def _send(report: ProcessReport) -> None:
    descriptor = os.environ.get(REPORT_FD)
    if descriptor is None:
        return
    try:
        os.set_blocking(int(descriptor), False)
        os.write(int(descriptor), msgspec.json.encode(report) + b"\n")
    except BlockingIOError:
        return  # the supervisor stands still: the pipe is full of news for it
    except (OSError, ValueError):
        os.environ.pop(REPORT_FD, None)  # the supervisor is gone: nobody to tell
