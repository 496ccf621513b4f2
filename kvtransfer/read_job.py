"""What the reader is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.block_span import BlockRun, BlockSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJob:
    """Blocks that a peer announced as final, and where they go."""

    request_id: str
    incarnation: str
    """Of the peer, as given to `connect`."""
    span: BlockSpan
    local_block_ids: Sequence[int]
    """The reader's alone until the job's result is there."""
    into: BlockRun | None = None
    """Parallel to the local blocks; None: the span is."""

    @property
    def num_blocks(self) -> int:
        """Of ours, to be filled."""
        return (self.into or self.span).num_blocks

    @property
    def first_index(self) -> int:
        """Index in the sequence of the first one."""
        return (self.into or self.span).first_index

    def problem(self) -> str:
        """Why this job cannot be right; empty when it can."""
        if not self.num_blocks or not self.span.num_blocks:
            return "malformed announcement: no blocks; needed: at least one"
        if problem := self.span.problem():
            return f"malformed announcement: {problem}"
        if len(self.local_block_ids) != self.num_blocks:
            return f"malformed job: {self.num_blocks} blocks into {len(self.local_block_ids)} slots"
        if len(set(self.local_block_ids)) != self.num_blocks:
            return "malformed job: a local block is named twice"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The one answer to a job. No byte of it lands after this."""

    job: ReadJob
    verified: tuple[range, ...]
    """Indices in the sequence of the blocks that hold what was announced, in order; also when
    others failed."""
    num_bytes: int
    """Read over the link, a second reading included."""
    duration_ms: float
    """From the first read until the last block was verified or given up."""
    error: str
    """Empty when every block verified."""


def runs_of(first_index: int, positions: Iterable[int]) -> tuple[range, ...]:
    """Positions (0 is `first_index`) as indices, sorted into runs of neighbours."""
    runs: list[range] = []
    for index in sorted(first_index + position for position in positions):
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return tuple(runs)
