"""The log of another process, passed on line by line; its end is kept for whoever asks why."""

from __future__ import annotations

import os

from cluster.log_writer import STANDARD_ERROR

_CHUNK_BYTES = 64 * 1024
_MAX_CHUNKS = 16
"""At a time: who logs without end does not keep us from anything else."""
_MAX_LINE_BYTES = 64 * 1024
_TAIL_BYTES = 4096
_TAIL_LINES = 5


class RelayedLines:
    """Of one process; whole lines, so that those of several do not mix. One thread's."""

    def __init__(self) -> None:
        self._line = b""
        self._tail = b""

    @property
    def last_lines(self) -> tuple[str, ...]:
        """Up to five; empty where nothing was written."""
        lines = (self._tail + self._line).decode(errors="replace").splitlines()
        return tuple([line.strip() for line in lines if line.strip()][-_TAIL_LINES:])

    def take(self, chunk: bytes) -> None:
        """What came next. Never blocks, never raises."""
        whole, end, rest = (self._line + chunk).rpartition(b"\n")
        self._line = rest
        self._write(whole + end)
        if len(self._line) > _MAX_LINE_BYTES:
            self._write(self._line)
            self._line = b""

    def close(self) -> None:
        """Passes on a last line that has no end. Idempotent."""
        self._write(self._line)
        self._line = b""

    def _write(self, data: bytes) -> None:
        if data:
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            STANDARD_ERROR.write(data)


class LogRelay:
    """From one pipe. One thread's."""

    def __init__(self, descriptor: int) -> None:
        """The pipe's reading end, which belongs to the relay from here on."""
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._lines = RelayedLines()

    @property
    def last_lines(self) -> tuple[str, ...]:
        """Up to five; empty where nothing was written."""
        return self._lines.last_lines

    def pass_on(self) -> None:
        """What is there now. Never blocks, never raises."""
        for _ in range(_MAX_CHUNKS):
            if self._descriptor is None:
                return
            try:
                chunk = os.read(self._descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if not chunk:
                self.close()
                return
            self._lines.take(chunk)

    def close(self) -> None:
        """Passes on a last line that has no end. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._lines.close()
