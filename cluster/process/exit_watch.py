"""The end of a child process, noticed when it happens."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable

KILL_TIMEOUT_S = 5.0
"""A killed process is gone within milliseconds, unless a driver keeps it: then it is given up."""
_POLL_S = 0.05


async def exit_of(
    child: subprocess.Popen[bytes], *, before_reaping: Callable[[], None] = lambda: None
) -> int:
    """Its exit code, or minus the signal that ended it; the child is reaped by then.

    The process alone counts: what it started may hold its pipes for as long as it likes. One
    caller at a time. `before_reaping`: it has ended, and its pid, which is also that of its group,
    is not yet free for another process.
    """
    if child.returncode is not None:
        return child.returncode
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):  # no Linux, or an old one; or it was reaped before
        return await _polled(child, before_reaping)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    before_reaping()
    return child.wait()


async def _polled(child: subprocess.Popen[bytes], before_reaping: Callable[[], None]) -> int:
    while not _has_ended(child):
        await asyncio.sleep(_POLL_S)
    before_reaping()
    return child.wait()


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # somebody has reaped it
        return True
    except AttributeError:  # another system, which only tells who reaps
        return child.poll() is not None
