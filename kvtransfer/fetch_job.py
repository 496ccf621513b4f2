"""What the intake is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchJob:
    """Blocks that a peer announced as final. Parallel sequences over its blocks."""

    request_id: str
    incarnation: str
    """Of the peer, as given to `connect`."""
    first_index: int
    """Index in the sequence of the first block."""
    remote_block_ids: Sequence[int]
    generations: Sequence[int]
    digests: bytes
    """Little-endian uint64 [num_blocks, num_layers, num_planes, num_kv_heads]."""
    local_block_ids: Sequence[int]
    """The reader's alone until the job's result is there."""

    @property
    def num_blocks(self) -> int:
        """Blocks to read."""
        return len(self.remote_block_ids)

    def problem(self) -> str:
        """Why this job cannot be right; empty when it can."""
        lengths = {
            "remote_block_ids": len(self.remote_block_ids),
            "generations": len(self.generations),
            "local_block_ids": len(self.local_block_ids),
        }
        if not self.num_blocks or len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
            return f"malformed announcement: {counts}; needed: as many of each, at least one"
        if len(set(self.local_block_ids)) != self.num_blocks:
            return "malformed job: a local block is named twice"
        return ""


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks [first_index, first_index + num_blocks) of a sequence."""

    first_index: int
    num_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """The one answer to a job. No byte of it lands after this."""

    request_id: str
    incarnation: str
    first_index: int
    num_blocks: int
    """As in the job."""
    verified: tuple[BlockRun, ...]
    """The blocks that hold what was announced, in order; also when others failed."""
    num_bytes: int
    """Read over the link, a second reading included."""
    duration_ms: float
    """From the first read until the last block was verified or given up."""
    error: str
    """Empty when every block verified."""


def runs_of(first_index: int, positions: Iterable[int]) -> tuple[BlockRun, ...]:
    """Positions (0 is `first_index`), sorted into runs of neighbours."""
    runs: list[BlockRun] = []
    for index in sorted(first_index + position for position in positions):
        last = runs[-1] if runs else None
        if last and last.first_index + last.num_blocks == index:
            runs[-1] = BlockRun(last.first_index, last.num_blocks + 1)
        else:
            runs.append(BlockRun(index, 1))
    return tuple(runs)
