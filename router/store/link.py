"""One connection to the store: commands go out together, and answers come back in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

StoreWord = str | bytes | int | float
StoreCommand = tuple[StoreWord, ...]
"""Its name, one word, and what goes with it."""
StoreReply = Any
"""As Redis sends it (RESP 2): bytes, int, None, or a list of those."""


@dataclass(frozen=True, slots=True)
class StoreRefusal:
    """In the place of a reply: the store understands a command, and does not carry it out."""

    message: str
    is_of_all: bool = False
    """Others would be refused as well: it cannot write, or does not know us any more."""


class StoreLink(Protocol):
    """From the event loop, one call at a time. It has no patience of its own: whoever calls cancels
    what takes too long, and closes it then."""

    async def connect(self) -> None:
        """Opens it anew. Raises LinkLost."""
        ...

    async def exchange(self, commands: Sequence[StoreCommand]) -> list[StoreReply | StoreRefusal]:
        """One for each command. Raises LinkLost."""
        ...

    def close(self) -> None:
        """Idempotent, at once: it says no goodbye."""
        ...
