"""What an engine has cached, as it tells those who hand blocks on to others: part by part."""

from __future__ import annotations

import msgspec

from cluster.cache_change import CachedBlock


class WarmBlock(msgspec.Struct, frozen=True):
    """A cached block, for those who choose what is worth keeping."""

    block: CachedBlock
    root: bytes | None
    """Of a first block: what its name was made from; None for all others."""
    last_used: int
    """Larger is later; equal for blocks that are in use."""


class WarmBlocks(msgspec.Struct, frozen=True):
    """A part of the list of warm blocks, or all of it. What was lost since the list was made is
    not in it; a name that several homes have may be in it more than once."""

    blocks: list[WarmBlock] = []
    num_listed: int = 0
    """Of the whole list, which has the hottest."""
    num_cached: int = 0
    """Different blocks that are cached, listed or not."""
