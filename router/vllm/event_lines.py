"""Server-sent events out of the bytes of an answer, whatever pieces they come in."""

from __future__ import annotations

from cluster.errors import WorkerLost

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The first event of a choice repeats its prompt: 7 bytes a token."""
DONE = b"[DONE]"
_PREFIX = b"data:"


class EventLines:
    """Of one answer. Holds at most one event that is not whole."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of events that are whole by now; comments and other fields are left out.

        Raises WorkerLost for an event that is longer than any that vLLM sends.
        """
        self._rest += piece
        if b"\n" not in piece:
            self._check()
            return []
        whole, _, rest = bytes(self._rest).rpartition(b"\n")
        self._rest = bytearray(rest)
        self._check()
        lines = (line.strip() for line in whole.split(b"\n"))
        return [line[len(_PREFIX) :].strip() for line in lines if line.startswith(_PREFIX)]

    def _check(self) -> None:
        if len(self._rest) > MAX_EVENT_BYTES:
            raise WorkerLost(f"sent an event of more than {MAX_EVENT_BYTES} bytes")
