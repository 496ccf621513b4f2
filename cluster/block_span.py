"""Neighbouring KV blocks of a sequence, as one worker offers them and another reads them.

engine: slots -> exporter: generations, digests -> BlocksReady -> ledger -> Fetch -> reader
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class BlockRun(msgspec.Struct, frozen=True):
    """Neighbouring blocks of a sequence by their indices, at one worker."""

    first_index: int
    num_blocks: int

    @property
    def end_index(self) -> int:
        """Behind the last block."""
        return self.first_index + self.num_blocks


class BlockSpan(msgspec.Struct, frozen=True):
    """Blocks [first_index, end_index) of a sequence, in the pool of the worker that computed them.

    The lists are parallel; a position is an index into them.
    """

    first_index: int
    """Index in the sequence of the first block."""
    block_ids: list[int]
    """Slots in that worker's pool."""
    generations: list[int] = []
    """Of those slots; empty until the exporter has filled them in."""
    digests: bytes = b""
    """Little-endian uint64 [num_blocks, num_layers, num_planes, num_kv_heads, parts]: of all heads
    of the model, and of the parts of a block that the reader asked for (one, of equal sizes)."""

    @property
    def run(self) -> BlockRun:
        """Its indices."""
        return BlockRun(self.first_index, self.num_blocks)

    @property
    def num_blocks(self) -> int:
        """May be 0."""
        return len(self.block_ids)

    @property
    def end_index(self) -> int:
        """Index in the sequence behind the last block."""
        return self.first_index + len(self.block_ids)

    def problem(self) -> str:
        """Why it cannot be right as an offer; empty when it can."""
        count = self.num_blocks
        if len(self.generations) != count or (count and len(self.digests) % count):
            return (
                f"{count} blocks with {len(self.generations)} generations and "
                f"{len(self.digests)} digest bytes"
            )
        return ""

    def part(self, start: int, stop: int) -> BlockSpan:
        """Positions [start, stop) of a span without a problem."""
        return BlockSpan(
            self.first_index + start,
            self.block_ids[start:stop],
            self.generations[start:stop],
            self.digests_of(start, stop),
        )

    def digests_of(self, start: int, stop: int) -> bytes:
        """Of positions [start, stop)."""
        stride = len(self.digests) // max(1, self.num_blocks)
        return self.digests[start * stride : stop * stride]

    @staticmethod
    def joined(parts: Sequence[BlockSpan]) -> BlockSpan:
        """One span of parts that follow each other in the sequence, wherever they lie."""
        return BlockSpan(
            parts[0].first_index,
            [block_id for part in parts for block_id in part.block_ids],
            [generation for part in parts for generation in part.generations],
            b"".join(part.digests for part in parts),
        )
