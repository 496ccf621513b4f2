"""What a worker's prefix cache gained and lost: from the engine to events to the router's index."""

from __future__ import annotations

import msgspec


class CachedBlock(msgspec.Struct, frozen=True):
    """A full block that entered the prefix cache."""

    name: bytes
    parent: bytes | None
    """None for the first block of a sequence."""
    token_ids: list[int]
    adapter: str = ""
    """Digest of the adapter that computed it; empty: the model alone did."""


class CacheChange(msgspec.Struct, frozen=True):
    """What a step did to the prefix cache, in order: stored blocks, then removed names."""

    stored: list[CachedBlock] = []
    removed: list[bytes] = []
    cleared: bool = False
