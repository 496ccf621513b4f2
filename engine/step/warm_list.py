"""What an engine has cached, hottest first, for those who choose what is worth keeping.

    part from 0: listed, as numbers of blocks -> parts, each with what its blocks hold now

No step makes much of it: of a large cache all at once is tens of megabytes.
"""

from __future__ import annotations

from engine.contract.commands import WARM_PART_BLOCKS
from engine.contract.warm_blocks import WarmBlock, WarmBlocks
from engine.memory.block_pool import BlockPool
from engine.memory.prefix_cache import PrefixCache

MAX_WARM_BLOCKS = 32_768
"""Half a million tokens in blocks of 16: about 40 MB where they are read. What is colder is handed
on to nobody."""


class WarmList:
    """Reads the pool and its cache; one list at a time."""

    def __init__(
        self, pool: BlockPool, cache: PrefixCache, *, max_blocks: int = MAX_WARM_BLOCKS
    ) -> None:
        self._pool, self._cache, self._max_blocks = pool, cache, max_blocks
        self._listed: list[tuple[int, int]] = []

    def part(self, first: int, *, max_blocks: int = WARM_PART_BLOCKS) -> WarmBlocks:
        """At most so many from that index on; 0 makes the list anew."""
        if first == 0:
            self._listed = self._pool.hottest(self._max_blocks)
        blocks = []
        for block_id, last_used in self._listed[first : first + max_blocks]:
            held = self._cache.entry(block_id)
            if held is not None:
                blocks.append(WarmBlock(*held, last_used))
        return WarmBlocks(blocks, len(self._listed), self._cache.num_names)
