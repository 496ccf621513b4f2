"""The process groups that this process has started, and takes along however it ends.

    started -> added -> its leader has ended, and was swept -> removed
    an end in haste (end_limit.py): all that are here are killed first

The kernel ends a child with its parent (parent_death.py), but nothing that this child has started.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress


class ChildGroups:
    """By the leader's pid, which is the group's own until the leader is reaped. Any thread."""

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def __contains__(self, pid: int) -> bool:
        return pid in self._pids

    def add(self, pid: int) -> None:
        """A group was started."""
        self._pids.add(pid)

    def remove(self, pid: int) -> None:
        """Before its leader is reaped; idempotent."""
        self._pids.discard(pid)

    def kill(self) -> None:
        """All of them, now."""
        for pid in tuple(self._pids):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


OWN_GROUPS = ChildGroups()
"""Of this process: there is one, as there is one end."""
