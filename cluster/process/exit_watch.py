"""The end of a child process, noticed when it happens."""

from __future__ import annotations

import asyncio
import os
import subprocess

KILL_TIMEOUT_S = 5.0
"""A killed process is gone within milliseconds, unless a driver keeps it: then it is given up."""
_POLL_S = 0.05


async def exit_of(child: subprocess.Popen[bytes]) -> int:
    """Its exit code, or minus the signal that ended it; the child is reaped by then.

    The process alone counts: what it started may hold its pipes for as long as it likes. One
    caller at a time.
    """
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):  # no Linux, or an old one; or it was reaped before
        return await _polled(child)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return child.wait()


async def _polled(child: subprocess.Popen[bytes]) -> int:
    while (status := child.poll()) is None:
        await asyncio.sleep(_POLL_S)
    return status
