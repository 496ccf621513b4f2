"""Where the blocks of a prefill worker lie on ours, when the two are of unequal size."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.granule import granule_tokens


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """In tokens: our blocks, and those of a prefill worker that can be read."""

    ours: int
    theirs: int

    @property
    def digest_tokens(self) -> int:
        """What it is asked to digest at a time, so that each of our blocks can be checked by
        itself; 0: a whole block."""
        if self.ours == self.theirs:
            return 0
        return granule_tokens(self.ours, self.theirs) or 0

    def of_prompt(self, *, num_tokens: int, num_blocks: int) -> SourceBlocks:
        """`num_blocks` are ours."""
        if self.ours == self.theirs:
            return SourceBlocks(1, 1, num_blocks)
        return SourceBlocks(self.ours, self.theirs, num_tokens)


@dataclass(frozen=True, slots=True)
class SourceBlocks:
    """Of one prompt: blocks of `ours` units here, of `theirs` there, and `total` units in all."""

    ours: int
    theirs: int
    total: int

    @property
    def is_same(self) -> bool:
        """True where a block there is a block here."""
        return self.ours == self.theirs

    @property
    def num_blocks(self) -> int:
        """There."""
        return -(-self.total // self.theirs)

    def first_for(self, index: int) -> int:
        """The first block there that has a part of ours, or of those behind."""
        return min(index * self.ours // self.theirs, self.num_blocks)

    def making(self, index: int) -> range:
        """Indices there of what makes up our block."""
        end = min((index + 1) * self.ours, self.total)
        return range(index * self.ours // self.theirs, -(-end // self.theirs))

    def made_with(self, index: int) -> range:
        """Indices of ours that have a part of a block there."""
        end = min((index + 1) * self.theirs, self.total)
        return range(index * self.theirs // self.ours, -(-end // self.ours))
