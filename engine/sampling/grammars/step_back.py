"""Threads beside the engine's whose work can wait: they take what those leave that compute."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import get_native_id

NICENESS = 5
"""More than the engine's own."""


def step_back() -> None:
    """For the calling thread, once, at its beginning."""
    thread_id = get_native_id()
    with suppress(OSError):  # a thread that may not is no slower for it
        niceness = os.getpriority(os.PRIO_PROCESS, thread_id)
        os.setpriority(os.PRIO_PROCESS, thread_id, min(19, niceness + NICENESS))
