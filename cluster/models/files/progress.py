"""How a long step says how far it is. Rendering is the command line's."""

from __future__ import annotations

from typing import Protocol


class ByteProgress(Protocol):
    """Called by one thread at a time: the one that asked for the model, or one that downloads it.

    `phase` is a short word such as "download", "unpack", "verify"; `total_bytes` is None while it
    is unknown. Calls come several times a second; the last of a phase has `done == total`.
    """

    def __call__(self, phase: str, done_bytes: int, total_bytes: int | None) -> None: ...


def silent(phase: str, done_bytes: int, total_bytes: int | None) -> None:
    """For callers who do not watch."""
