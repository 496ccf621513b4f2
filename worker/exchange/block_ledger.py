"""What is known of the prompt blocks of one request that come from elsewhere.

    MISSING -> READING -> VERIFIED
       ^----------'  a read failed: the block may be read again, from another source

A block is never read twice at a time, and never again once it is verified: a late read of an old
source cannot meet a new one in the same page. Blocks are ours; where those of the source have
another size, one of ours is missing until all that it is made of was offered.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster.block_span import BlockRun, BlockSpan
from cluster.errors import TransferFailed
from worker.exchange.source_blocks import SourceBlocks


class BlockArrival(enum.Enum):
    """How far one block of the prompt is."""

    MISSING = "missing"
    READING = "reading"
    VERIFIED = "verified"


class WantedBlocks(NamedTuple):
    """What is to be read: blocks of the source, and which of ours they make."""

    span: BlockSpan
    into: BlockRun | None
    """None: those of the span's indices."""

    @property
    def first_index(self) -> int:
        """Of ours: by it the read is answered."""
        return (self.into or self.span).first_index


class BlockLedger:
    """Blocks [0, num_blocks) of a sequence; those before `first_block` are there already."""

    def __init__(self, *, num_blocks: int, first_block: int) -> None:
        verified = min(first_block, num_blocks)
        self._states = [BlockArrival.VERIFIED] * verified
        self._states += [BlockArrival.MISSING] * (num_blocks - verified)
        self._source = SourceBlocks(1, 1, num_blocks)
        self._offers: dict[int, BlockSpan] = {}  # index there -> that block, at the current source
        self._reading: dict[int, int] = {}  # first index of a read -> its number of blocks

    @property
    def num_blocks(self) -> int:
        """Of the prompt."""
        return len(self._states)

    @property
    def is_complete(self) -> bool:
        """True when every block is verified."""
        return BlockArrival.VERIFIED is self._worst()

    @property
    def is_quiet(self) -> bool:
        """True when no read is under way."""
        return not self._reading

    @property
    def first_unverified(self) -> int:
        """Index of the first block that is not verified; `num_blocks` when all are."""
        for index, state in enumerate(self._states):
            if state is not BlockArrival.VERIFIED:
                return index
        return len(self._states)

    def begin_source(self, blocks: SourceBlocks) -> None:
        """What is offered from now on are such blocks."""
        self._offers.clear()
        self._source = blocks

    def offer(self, span: BlockSpan) -> None:
        """The current source has these blocks. Raises TransferFailed when it makes no sense."""
        self._check(span)
        for at in range(span.num_blocks):
            self._offers[span.first_index + at] = span.part(at, at + 1)

    def forget_offers(self) -> None:
        """The source is given up; its reads under way will still be answered."""
        self._offers.clear()

    def take_reads(self) -> list[WantedBlocks]:
        """Offered blocks that are missing: the caller reads them now."""
        touched = {index for at in self._offers for index in self._source.made_with(at)}
        wanted = sorted(index for index in touched if self._may_be_read(index))
        return [self._start(indices) for indices in _runs(wanted)]

    def answer(self, first_index: int, num_verified: int) -> None:
        """The read that began at `first_index` is over; its first `num_verified` are good."""
        count = self._reading.pop(first_index, 0)
        for at in range(count):
            good = at < num_verified
            state = BlockArrival.VERIFIED if good else BlockArrival.MISSING
            self._states[first_index + at] = state

    def _may_be_read(self, index: int) -> bool:
        is_missing = self._states[index] is BlockArrival.MISSING
        return is_missing and all(at in self._offers for at in self._source.making(index))

    def _start(self, indices: list[int]) -> WantedBlocks:
        for index in indices:
            self._states[index] = BlockArrival.READING
        self._reading[indices[0]] = len(indices)
        first, last = self._source.making(indices[0]), self._source.making(indices[-1])
        span = BlockSpan.joined([self._offers[at] for at in range(first.start, last.stop)])
        run = BlockRun(indices[0], len(indices))
        return WantedBlocks(span, None if self._source.is_same else run)

    def _worst(self) -> BlockArrival:
        for state in (BlockArrival.MISSING, BlockArrival.READING):
            if state in self._states:
                return state
        return BlockArrival.VERIFIED

    def _check(self, span: BlockSpan) -> None:
        if problem := span.problem():
            raise TransferFailed(f"a prefill worker announced {problem}")
        if span.end_index > self._source.num_blocks:
            raise TransferFailed(
                f"a prefill worker announced block {span.end_index - 1} of a prompt "
                f"that has {self._source.num_blocks} there"
            )


def _runs(indices: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for index in indices:
        if run and index != run[-1] + 1:
            yield run
            run = []
        run.append(index)
    if run:
        yield run
