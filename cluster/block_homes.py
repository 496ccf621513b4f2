"""Which rank of a group backs which KV block.

    heads are shared     num_homes is 1: every rank backs every block, by its own heads
    blocks are shared    rank r backs ids [r * blocks_each, (r + 1) * blocks_each), with all heads

Block ids are one space for the whole group either way: tables, generations and leases know no
others. Only who touches bytes asks for the local id. A frozen value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockHomes:
    """`num_homes`: as many as the group has ranks; 1 where they share the heads of each block."""

    num_homes: int
    blocks_each: int
    """Blocks of one home: the least that any rank has room for."""

    @property
    def are_several(self) -> bool:
        """True where the ranks share the blocks."""
        return self.num_homes > 1

    @property
    def num_blocks(self) -> int:
        """Ids in all."""
        return self.num_homes * self.blocks_each

    def home_of(self, block: int) -> int:
        """The home of a block; 0 where every rank backs it."""
        return block // self.blocks_each

    def local(self, block: int) -> int:
        """Its index in the pool of whoever backs it."""
        return block % self.blocks_each

    def ids_of(self, rank: int) -> range:
        """The blocks of one home."""
        return range(rank * self.blocks_each, (rank + 1) * self.blocks_each)
