"""A folder of one process, in a place that all may use: its sockets, its logs.

    make     also removes those of the same prefix whose owner was killed before it could
    remove   at the end

Whose process lives is told by a lock, which the kernel lets go with it: pids of other containers
mean nothing here. A folder is locked before it has the name that others look for.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_LOCK = "in-use"
_BEING_MADE = ".being-made-"


class OwnedFolder:
    """Owned by the process that made it, and gone at the latest with the next one's start."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls, prefix: str, room: Path) -> OwnedFolder:
        """A new one, of this user alone. Raises OSError where there is no room."""
        for left in room.glob(f"{prefix}*"):
            _remove_if_left(left)
        made = Path(tempfile.mkdtemp(prefix=_BEING_MADE, dir=room))
        lock = (made / _LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = made.rename(room / (prefix + made.name.removeprefix(_BEING_MADE)))
        return cls(path, lock)

    def remove(self) -> None:
        """With all that is in it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_if_left(path: Path) -> None:
    """One without a lock is not ours."""
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
