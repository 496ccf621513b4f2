"""Which block holds which run of tokens: names of full, computed or verified blocks.

    store --> named, in use --> named, unused (the pool's LRU) --> forget (slot reused)
                    ^------------- match + share ----'

A name stands for a block and all before it (cluster/block_hash.py). The pool decides which unused
block is reused; this file only knows names, and logs what it gained and lost. Each home of blocks
(cluster/block_homes.py) has names of its own, since a sequence shares blocks of its own home only;
the log is of them all: a name is gained with its first block, and lost with its last.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.block_homes import BlockHomes
from cluster.cache_change import CacheChange, CachedBlock


class PrefixCache:
    """Block names in both directions. One block has at most one name, one name one block a home."""

    def __init__(self, homes: BlockHomes, *, enabled: bool = True) -> None:
        self._homes = homes
        self._enabled = enabled
        self._blocks_by_name: list[dict[bytes, int]] = [{} for _ in range(homes.num_homes)]
        self._entry_by_block: dict[int, CachedBlock] = {}
        self._root_by_block: dict[int, bytes] = {}
        """Of first blocks."""
        self._stored: dict[bytes, CachedBlock] = {}
        self._removed: dict[bytes, None] = {}

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._entry_by_block

    def __len__(self) -> int:
        return len(self._entry_by_block)

    def match(self, names: Sequence[bytes], max_blocks: int, *, home: int) -> list[int]:
        """The longest prefix of `names` that is known at `home`, at most `max_blocks`, as block
        ids. Asks only."""
        known, found = self._blocks_by_name[home], []
        for name in names[:max_blocks]:
            block_id = known.get(name)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def store(self, block_id: int, entry: CachedBlock, *, root: bytes = b"") -> None:
        """Names a block whose KV is final. A name that another block of its home has already stays
        there. `root`: what the name of the sequence's first block was made from."""
        names = self._names_beside(block_id)
        if not self._enabled or entry.name in names or block_id in self:
            return
        is_news = not self._is_known(entry.name)
        names[entry.name] = block_id
        self._entry_by_block[block_id] = entry
        if entry.parent is None:
            self._root_by_block[block_id] = root
        if is_news:
            self._gained(entry)

    def forget(self, block_id: int) -> None:
        """The slot is about to be overwritten; a block without a name is fine."""
        entry = self._entry_by_block.pop(block_id, None)
        if entry is None:
            return
        self._root_by_block.pop(block_id, None)
        del self._names_beside(block_id)[entry.name]
        if not self._is_known(entry.name):
            self._lost(entry.name)

    def take_change(self) -> CacheChange | None:
        """The net change since the last call; None when there was none."""
        if not self._stored and not self._removed:
            return None
        change = CacheChange(stored=list(self._stored.values()), removed=list(self._removed))
        self._stored.clear()
        self._removed.clear()
        return change

    @property
    def num_names(self) -> int:
        """Different ones, of all homes."""
        if not self._homes.are_several:
            return len(self._entry_by_block)
        return len(set().union(*self._blocks_by_name))

    def entry(self, block_id: int) -> tuple[CachedBlock, bytes | None] | None:
        """What the block holds, and of a first block the root of its sequence; None: no name."""
        entry = self._entry_by_block.get(block_id)
        return None if entry is None else (entry, self._root_by_block.get(block_id))

    def snapshot(self) -> list[CachedBlock]:
        """Every name once, parents before their children."""
        children: dict[bytes | None, list[CachedBlock]] = {}
        for entry in {entry.name: entry for entry in self._entry_by_block.values()}.values():
            known = entry.parent is not None and self._is_known(entry.parent)
            children.setdefault(entry.parent if known else None, []).append(entry)
        ordered = children.get(None, [])
        for entry in ordered:  # grows while it is walked
            ordered.extend(children.get(entry.name, ()))
        return ordered

    def check_invariants(self) -> list[str]:
        """Broken promises, in words; empty is good."""
        forward = {pair for names in self._blocks_by_name for pair in names.items()}
        backward = {(entry.name, block) for block, entry in self._entry_by_block.items()}
        found = [f"prefix cache: {pair} is known one way only" for pair in forward ^ backward]
        found += [
            f"prefix cache: block {block} has a root and is no first block"
            for block in self._root_by_block
            if block not in self or self._entry_by_block[block].parent is not None
        ]
        found += [
            f"prefix cache: block {block} is known at home {home}, which is not its own"
            for home, names in enumerate(self._blocks_by_name)
            for block in names.values()
            if self._homes.home_of(block) != home
        ]
        return found

    def _names_beside(self, block_id: int) -> dict[bytes, int]:
        """Those of its home."""
        return self._blocks_by_name[self._homes.home_of(block_id)]

    def _is_known(self, name: bytes) -> bool:
        return any(name in names for names in self._blocks_by_name)

    def _gained(self, entry: CachedBlock) -> None:
        if entry.name in self._removed:
            del self._removed[entry.name]
        else:
            self._stored[entry.name] = entry

    def _lost(self, name: bytes) -> None:
        if name in self._stored:
            del self._stored[name]
        else:
            self._removed[name] = None
