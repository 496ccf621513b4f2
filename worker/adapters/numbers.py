"""A worker's adapters in numbers: replaced as a whole, so that any thread may read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterNumbers:
    """Of now, and counts since the worker's start."""

    offered: int = 0
    """Names that routers are told of."""
    resident: int = 0
    """Versions in the device's memory."""
    resident_bytes: int = 0
    """That those take at the engine's first rank."""
    read: int = 0
    """Times that one was read into memory."""
    evicted: int = 0
    """Times that one gave way to another there, and was offered still."""
    withdrawn: int = 0
    """Versions that no name stood for any more, and that the engine was told to let go of."""
    refused: int = 0
    """Times that a folder's files were looked at and could not be used."""
    unread: int = 0
    """Times that they could not be read; they are tried again."""
    lost: int = 0
    """Versions that were offered and could not be read again."""
    folder_unread_s: float = 0.0
    """Since the folder itself could be read last; 0.0: the last look has read it."""
