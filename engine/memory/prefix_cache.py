"""Which block holds which run of tokens: names of full, computed or verified blocks.

    store --> named, in use --> named, unused (the pool's LRU) --> forget (slot reused)
                    ^------------- match + share ----'

A name stands for a block and all before it (cluster/block_hash.py). The pool decides which unused
block is reused; this file only knows names, and logs what it gained and lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.cache_change import CacheChange, CachedBlock


class PrefixCache:
    """Block names in both directions. One block has at most one name, one name one block."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._block_by_name: dict[bytes, int] = {}
        self._entry_by_block: dict[int, CachedBlock] = {}
        self._stored: dict[bytes, CachedBlock] = {}
        self._removed: dict[bytes, None] = {}

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._entry_by_block

    def __len__(self) -> int:
        return len(self._entry_by_block)

    def match(self, names: Sequence[bytes], max_blocks: int) -> list[int]:
        """The longest known prefix of `names`, at most `max_blocks`, as block ids. Asks only."""
        found = []
        for name in names[:max_blocks]:
            block_id = self._block_by_name.get(name)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def store(self, block_id: int, entry: CachedBlock) -> None:
        """Names a block whose KV is final. A name that another block has already stays there."""
        if not self._enabled or entry.name in self._block_by_name or block_id in self:
            return
        self._block_by_name[entry.name] = block_id
        self._entry_by_block[block_id] = entry
        if entry.name in self._removed:
            del self._removed[entry.name]
        else:
            self._stored[entry.name] = entry

    def forget(self, block_id: int) -> None:
        """The slot is about to be overwritten; a block without a name is fine."""
        entry = self._entry_by_block.pop(block_id, None)
        if entry is None:
            return
        del self._block_by_name[entry.name]
        if entry.name in self._stored:
            del self._stored[entry.name]
        else:
            self._removed[entry.name] = None

    def take_change(self) -> CacheChange | None:
        """The net change since the last call; None when there was none."""
        if not self._stored and not self._removed:
            return None
        change = CacheChange(stored=list(self._stored.values()), removed=list(self._removed))
        self._stored.clear()
        self._removed.clear()
        return change

    def snapshot(self) -> list[CachedBlock]:
        """Every named block, parents before their children."""
        children: dict[bytes | None, list[CachedBlock]] = {}
        for entry in self._entry_by_block.values():
            known = entry.parent in self._block_by_name
            children.setdefault(entry.parent if known else None, []).append(entry)
        ordered = children.get(None, [])
        for entry in ordered:  # grows while it is walked
            ordered.extend(children.get(entry.name, ()))
        return ordered

    def check_invariants(self) -> list[str]:
        """Broken promises, in words; empty is good."""
        forward = {(name, block) for name, block in self._block_by_name.items()}
        backward = {(entry.name, block) for block, entry in self._entry_by_block.items()}
        return [f"prefix cache: {pair} is known one way only" for pair in forward ^ backward]
