"""Lines of a log that are written together, in pieces that nobody else's lines come between."""

from __future__ import annotations

import select
from dataclasses import dataclass

import msgspec

WHOLE_BYTES = getattr(select, "PIPE_BUF", 512)
"""So much a pipe takes at once or not at all, whoever else writes to it."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """`told`, then the lines themselves."""

    lines: bytes
    told: bytes = b""
    """About lines before these."""
    num_lost: int = 0
    """Which it tells of."""

    @property
    def num_bytes(self) -> int:
        """Of all."""
        return len(self.told) + len(self.lines)

    def piece(self, start: int) -> bytes:
        """From there on: whole lines, of at most WHOLE_BYTES where the first is not longer."""
        data = self.told + self.lines
        if len(data) - start <= WHOLE_BYTES:
            return data[start:]
        end = data.rfind(b"\n", start, start + WHOLE_BYTES) + 1
        return data[start : end or data.find(b"\n", start) + 1 or len(data)]

    def num_lost_after(self, start: int) -> int:
        """Lines that nobody reads, nor hears of, when nothing from there on can be written."""
        if start < len(self.told):
            return self.num_lost + self.lines.count(b"\n")
        return self.lines.count(b"\n", start - len(self.told))

    def is_torn_at(self, start: int) -> bool:
        """True where that is in the middle of a line."""
        data = self.told + self.lines
        return start > 0 and data[start - 1 : start] != b"\n"


def told_of(*, num_lost: int, fault: str) -> bytes:
    """Lines about lines."""
    told = b""
    if num_lost:
        lost = "log lines were lost: standard error was not read, or could not be written"
        told += _line({"level": "warning", "event": lost, "num_lost": num_lost})
    if fault:
        unwritten = "a log line could not be written"
        told += _line({"level": "error", "event": unwritten, "cause": fault})
    return told


def _line(event: dict[str, object]) -> bytes:
    return msgspec.json.encode(event) + b"\n"
