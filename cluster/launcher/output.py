"""What a child prints: all of it to its log, the warnings to the operator, the end remembered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

MAX_LINE_BYTES = 64 * 1024
TAIL_LINES = 60

OnWarning = Callable[[str, str], None]
"""Called with (level, text)."""

_SHOWN_LEVELS = frozenset({"warning", "error", "critical"})
_SILENT_KEYS = frozenset({"level", "event", "timestamp", "process", "logger"})


class ChildOutput:
    """One process's output. `follow` runs until the pipe is closed by all who hold it."""

    def __init__(self, log: Path | None, on_warning: OnWarning) -> None:
        self._log = log
        self._on_warning = on_warning
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines so far."""
        return tuple(self._tail)

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Reads to the end. Lines longer than MAX_LINE_BYTES are cut into pieces."""
        with (self._log or Path("/dev/null")).open("ab", buffering=0) as log:
            rest = b""
            while chunk := await stream.read(MAX_LINE_BYTES):
                log.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._take(line)
            if rest:
                self._take(rest)

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self._tail.append(text)
        event = structured_event(line)
        if event is not None and event.get("level") in _SHOWN_LEVELS:
            self._on_warning(event["level"], _in_words(event))


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
