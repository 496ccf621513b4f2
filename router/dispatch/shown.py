"""How much of an answer that passes by can be seen."""

from __future__ import annotations

import enum


class Shown(enum.Enum):
    """What a gateway lets be seen of an answer."""

    TOKENS = enum.auto()
    """Of a stream, as they come."""
    WHOLE = enum.auto()
    """It comes in one piece: its head says that it is made."""
    HEAD = enum.auto()
    """Of a stream: it says that the server was reached."""
