"""What a child prints: all of it to its log, the warnings to the operator, the end remembered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cluster.launcher.failed_handshakes import FewHandshakes
from cluster.launcher.log_file import LogFile
from cluster.process.pipe import MAX_LINE_BYTES, Lines

TAIL_LINES = 60

OnWarning = Callable[[str, str], None]
"""Called with (level, text)."""

_SHOWN_LEVELS = frozenset({"warning", "error", "critical"})
_SILENT_KEYS = frozenset({"level", "event", "timestamp", "process", "logger"})


class ProcessOutput(Protocol):
    """Who reads what a process prints."""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines so far."""

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Reads to the end, which is when all who hold the pipe have closed it."""


class ChildOutput:
    """One process's output. `follow` runs until the pipe is closed by all who hold it.

    Whatever happens to the log or to the operator's terminal, the pipe is emptied: a process whose
    output is not read stands still.
    """

    def __init__(self, log: Path | None, on_warning: OnWarning) -> None:
        self._log = None if log is None else LogFile(log, lambda text: self._warn("warning", text))
        self._on_warning = on_warning
        self._few_handshakes = FewHandshakes()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines so far."""
        return tuple(self._tail)

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Reads to the end."""
        lines = Lines()
        try:
            while read := await stream.read(MAX_LINE_BYTES):
                chunk = self._few_handshakes.of(read)
                self._keep(chunk)
                for line in lines.take(chunk):
                    self._take(line)
        finally:
            for line in lines.take_rest():
                self._take(line)
            if self._log is not None:
                self._log.close()

    def _keep(self, chunk: bytes) -> None:
        if self._log is not None:
            self._log.write(chunk)

    def _warn(self, level: str, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone
            self._on_warning(level, text)

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self._tail.append(text)
        event = structured_event(line)
        if event is not None and event.get("level") in _SHOWN_LEVELS:
            self._warn(event["level"], _in_words(event))


def structured_event(line: bytes) -> dict[str, Any] | None:
    """The event that a line of the fleet's own log is; None for other output."""
    if not line.startswith(b"{"):
        return None
    try:
        event = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return event if isinstance(event, dict) else None


def _in_words(event: dict[str, Any]) -> str:
    facts = [f"{key}={value}" for key, value in event.items() if key not in _SILENT_KEYS]
    return " ".join([str(event.get("event", "")), *facts])
