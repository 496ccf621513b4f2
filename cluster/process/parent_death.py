"""A child that ends when its parent does, however the parent ended.

The supervisor cannot tidy up after SIGKILL, so every child asks the kernel to do it. Linux only;
elsewhere a child of a killed supervisor goes on until it is stopped by hand.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_PID = "SPLITSERVE_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def die_with_parent(signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Called first thing in a child's main thread; does nothing in a process started by hand.

    The parent's pid is in $SPLITSERVE_PARENT_PID, so that a parent that died before this call is
    noticed as well.
    """
    parent_pid = os.environ.pop(PARENT_PID, None)
    if parent_pid is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != int(parent_pid):
        os.kill(os.getpid(), signal_number)
