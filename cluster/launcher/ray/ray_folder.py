"""The folder of a Ray of our own: its sockets and its own logs.

    make     also removes the folders of those that were killed before they could
    remove   at the end

Whose process lives is told by a lock, which the kernel lets go with it: pids of other containers
mean nothing here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_ROOM = Path("/tmp")
"""The path of a Unix socket has 107 characters at most, and Ray adds 65 to its folder's."""
_PREFIX = "splitserve-ray-"
_LOCK = "in-use"


class RayFolder:
    """Owned by the process that made it."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls, room: Path = _ROOM) -> RayFolder:
        """A new one. Raises OSError where there is no room."""
        for left in room.glob(f"{_PREFIX}*"):
            _remove_if_left(left)
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=room))
        lock = (path / _LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(path, lock)

    def remove(self) -> None:
        """With all that is in it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_if_left(path: Path) -> None:
    """One that has no lock yet is just being made."""
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:  # its owner lives
        pass
    finally:
        os.close(descriptor)
