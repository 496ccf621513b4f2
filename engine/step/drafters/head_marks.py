"""Which blocks of a sequence have a head's keys and values: as their marks say, and as it marks
them.

a block is named by its tokens (cluster/block_hash.py), and one that is not full by those it has
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch

from cluster.block_hash import chain_names, pack_tokens
from engine.memory.head_blocks import HeadBlocks
from engine.step.drafting.head_kv import HeadKv
from engine.step.requests.sequence import Sequence

_WORD_BYTES = 8


class HeadMarks:
    """Of the blocks of one engine."""

    def __init__(self, blocks: HeadBlocks, block_size: int) -> None:
        self._blocks, self._block_size = blocks, block_size

    def state_before(self, sequence: Sequence, place: int) -> torch.Tensor | None:
        """float32 [1, hidden], of the token before `place`, where all pairs up to it are in the
        sequence's blocks; None: they are not."""
        num_blocks = -(-place // self._block_size)
        block_ids = sequence.blocks.block_ids[:num_blocks]
        marks = self._marks(sequence, 0, place)
        state = self._blocks.state_behind(block_ids, marks)
        return None if state is None else state[None]

    def forget(self, kv: HeadKv, reach: int) -> None:
        """Its pairs are about to be read, and guesses written up to place `reach`."""
        self._blocks.forget(kv.written(reach))

    def mark(self, sequence: Sequence, kv: HeadKv, states: torch.Tensor, first: int) -> None:
        """All pairs up to `kv.num_seen` are read. `states` is float32 [states, hidden], of tokens
        from place `first` on."""
        size, end = self._block_size, kv.num_seen
        if not kv.is_whole:
            return
        start = kv.num_marked // size
        ends = [min((block + 1) * size, end) for block in range(start, -(-end // size))]
        block_ids = kv.lease.block_ids[start : start + len(ends)]
        rows = states[[place - 1 - first for place in ends]]
        self._blocks.mark(block_ids, self._marks(sequence, start, end), rows)
        kv.num_marked = end

    def _marks(self, sequence: Sequence, start: int, end: int) -> list[int]:
        """Of the blocks of its tokens up to place `end`, from block `start` on."""
        size, names = self._block_size, sequence.names(self._block_size)
        num_full = end // size
        found = names[start:num_full]
        if end % size:
            parent = names[num_full - 1] if num_full else sequence.cache_root
            rest: Ordered[int] = sequence.token_ids[num_full * size : end]
            found = found + chain_names(
                pack_tokens(rest), parent=parent, block_size_tokens=len(rest)
            )
        return [int.from_bytes(name[:_WORD_BYTES], "little") or 1 for name in found]
