"""A child's log on disk. A disk that cannot be written costs lines, never the child."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from cluster.deadline import Clock

RETRY_S = 1.0
"""How often a log that could not be written is tried again."""

Say = Callable[[str], None]


class LogFile:
    """Appends; opens the file at the first write. Nothing here raises OSError."""

    def __init__(self, path: Path, say: Say, *, clock: Clock = time.monotonic) -> None:
        """`say` is called once when writing fails, and once when it goes on."""
        self._path = path
        self._say = say
        self._clock = clock
        self._file: IO[bytes] | None = None
        self._lost_bytes = 0
        self._retry_at_s = 0.0

    def write(self, chunk: bytes) -> None:
        """Writes it all, or counts as lost what could not be written."""
        if self._lost_bytes and self._clock() < self._retry_at_s:
            self._lost_bytes += len(chunk)
            return
        written = 0
        try:
            self._note_the_loss()
            while written < len(chunk):
                written += self._opened().write(chunk[written:])
        except OSError as cause:
            self._lose(len(chunk) - written, cause)

    def close(self) -> None:
        """The child has ended."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        return self._file

    def _note_the_loss(self) -> None:
        """Where the gap is in the file, once it can be written again."""
        if self._lost_bytes:
            note = f"\n[{self._lost_bytes} bytes of this log could not be written]\n"
            self._opened().write(note.encode())
            self._say(f"{self._path} is written again; {self._lost_bytes} bytes were lost")
            self._lost_bytes = 0

    def _lose(self, num_bytes: int, cause: OSError) -> None:
        if not self._lost_bytes:
            self._say(f"{self._path} cannot be written ({cause.strerror}): its lines are lost")
        self._lost_bytes += num_bytes
        self._retry_at_s = self._clock() + RETRY_S
