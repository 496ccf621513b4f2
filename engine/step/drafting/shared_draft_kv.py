"""Which blocks of a draft model's pool hold the whole KV of which run of tokens.

    written -> forgotten -> read to the end of the block -> known by the name of its tokens

The name is that of the target's block (cluster/block_hash.py: of all tokens up to there). What is
known stays true whoever has the block meanwhile: the target's own KV in it does not matter, and of
a block that the target finds cached the draft's part is read anew where it is not there. Only known
tokens count as read; nothing of this is announced, exported or matched for the target.
"""

from __future__ import annotations

from collections.abc import Sequence


class SharedDraftKv:
    """Of one draft model."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.era = 0
        """What was read in an older one is in doubt."""
        self._names: dict[int, bytes] = {}

    def __len__(self) -> int:
        """Blocks that are known."""
        return len(self._names)

    def prefix_tokens(self, block_ids: Sequence[int], names: Sequence[bytes]) -> int:
        """Tokens at the beginning of a sequence that are there."""
        num_blocks = 0
        for block_id, name in zip(block_ids, names, strict=False):
            if self._names.get(block_id) != name:
                break
            num_blocks += 1
        return num_blocks * self.block_size

    def begin(self, block_ids: Sequence[int], first: int, end: int) -> None:
        """Tokens `first` to `end` of a sequence with these blocks are about to be written."""
        for index in range(first // self.block_size, -(-end // self.block_size)):
            self._names.pop(block_ids[index], None)

    def done(self, block_ids: Sequence[int], names: Sequence[bytes], first: int, end: int) -> None:
        """They were, and those before them are there: all are known tokens."""
        for index in range(first // self.block_size, end // self.block_size):
            self._names[block_ids[index]] = names[index]

    def doubt_all(self) -> None:
        """A forward failed: nobody knows what it has written."""
        self._names.clear()
        self.era += 1
