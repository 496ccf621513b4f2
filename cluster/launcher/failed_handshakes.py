"""What gRPC writes of TLS handshakes that fail, a line for each: strangers can make any number of
them, so a log has the first few."""

from __future__ import annotations

MAX_TOLD = 64
_MARK = b"] Handshake failed with error"
_LAST = b"[further failed handshakes are left out]\n"


class FewHandshakes:
    """Of one process."""

    def __init__(self) -> None:
        self._num_told = 0

    def of(self, chunk: bytes) -> bytes:
        """What of the process's output is kept. A line that comes in two chunks passes as others
        do."""
        if _MARK not in chunk:
            return chunk
        return b"".join(self._kept(line) for line in chunk.splitlines(keepends=True))

    def _kept(self, line: bytes) -> bytes:
        if _MARK not in line:
            return line
        self._num_told += 1
        if self._num_told > MAX_TOLD:
            return b""
        return line if self._num_told < MAX_TOLD else line + _LAST
