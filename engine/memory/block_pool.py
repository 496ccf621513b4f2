"""Who may use which block of the KV pool. Integers only; the bytes are engine/memory/kv_pool.py's.

                      allocate                       release, without a name
    FREE ------------------------> ACTIVE / -----------------------> FREE
                                   EXPORTED /
    CACHED ----------------------> RECEIVING ----------------------> CACHED
        reuse: name forgotten          ^        release, named
        share: name kept               '-- a lease may turn from one hold to another

FREE and CACHED blocks stand in one list for each home (cluster/block_homes.py), oldest first: what
the prefix cache loses next there. A lease holds blocks of one home. A block's
generation is bumped before its slot is given to another sequence, so that a remote reader who
compares generations after reading never believes bytes of the wrong sequence.
"""

from __future__ import annotations

import enum
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import torch

from cluster.block_homes import BlockHomes
from engine.memory.prefix_cache import PrefixCache


class Hold(enum.Enum):
    """Why a lease holds its blocks."""

    ACTIVE = "active"
    EXPORTED = "exported"
    RECEIVING = "receiving"


class BlockState(enum.Enum):
    """What a block is used for."""

    FREE = "free"
    CACHED = "cached"
    ACTIVE = "active"
    EXPORTED = "exported"
    RECEIVING = "receiving"


_STATE_OF_HOLD = {
    Hold.RECEIVING: BlockState.RECEIVING,
    Hold.EXPORTED: BlockState.EXPORTED,
    Hold.ACTIVE: BlockState.ACTIVE,
}
"""In order of precedence: a block that is both shared and exported counts as exported."""


class BlockHolder(Protocol):
    """A lease, as the pool sees it."""

    @property
    def hold(self) -> Hold:
        """Why."""

    @property
    def home(self) -> int:
        """Where all of its blocks are."""

    @property
    def block_ids(self) -> Sequence[int]:
        """What it has been counted for."""


class BlockPool:
    """Conserves blocks: every one is free, cached, or held by at least one lease."""

    def __init__(self, homes: BlockHomes, cache: PrefixCache) -> None:
        num_blocks = homes.num_blocks
        self.homes = homes
        self.num_blocks = num_blocks
        self.generations = torch.zeros(num_blocks, dtype=torch.int64)
        self._cache = cache
        self._unused: list[OrderedDict[int, None]] = [
            OrderedDict.fromkeys(homes.ids_of(home)) for home in range(homes.num_homes)
        ]
        self._states = [BlockState.FREE] * num_blocks
        self._num_held = {hold: array("i", bytes(4 * num_blocks)) for hold in Hold}
        self._held_counts = tuple(self._num_held.values())
        self._counts = dict.fromkeys(BlockState, 0) | {BlockState.FREE: num_blocks}
        self._leases: set[BlockHolder] = set()

    @property
    def num_available(self) -> int:
        """Free and cached blocks, of all homes."""
        return sum(map(len, self._unused))

    def available_at(self, home: int) -> int:
        """Blocks that an allocation there can have: free and cached ones."""
        return len(self._unused[home])

    @property
    def leases(self) -> frozenset[BlockHolder]:
        """Those that are alive."""
        return frozenset(self._leases)

    def count(self, state: BlockState) -> int:
        """Blocks in this state."""
        return self._counts[state]

    def state(self, block_id: int) -> BlockState:
        """What the block is used for."""
        return self._states[block_id]

    def num_holders(self, block_id: int) -> int:
        """Leases that hold the block."""
        active, exported, receiving = self._held_counts
        return active[block_id] + exported[block_id] + receiving[block_id]

    def is_unused(self, block_id: int) -> bool:
        """True when no lease holds the block."""
        return block_id in self._unused[self.homes.home_of(block_id)]

    def hottest(self, max_blocks: int) -> list[tuple[int, int]]:
        """Named blocks, and when each was used: those in use, then the others by their places in
        their homes' lists, where what is lost next is 0. Latest first."""
        used = (block_id for lease in self._leases for block_id in lease.block_ids)
        named = dict.fromkeys(block_id for block_id in used if block_id in self._cache)
        held = [(block_id, self.num_blocks) for block_id in named]
        unused = (each for listed in self._unused for each in self._hottest_of(listed, max_blocks))
        return (held + sorted(unused, key=lambda each: -each[1]))[:max_blocks]

    def take(self, num_blocks: int, hold: Hold, *, home: int) -> list[int] | None:
        """For leases: fresh blocks of one home, oldest first, their names forgotten; None: not
        enough there now."""
        unused = self._unused[home]
        if num_blocks > len(unused):
            return None
        taken = [unused.popitem(last=False)[0] for _ in range(num_blocks)]
        if taken:
            self.generations[taken] += 1
        for block_id in taken:
            self._cache.forget(block_id)
        self.add_holder(taken, hold, home=home)
        return taken

    def add_holder(self, block_ids: Iterable[int], hold: Hold, *, home: int) -> None:
        """For leases: one more holder of each, all blocks of that home."""
        unused = self._unused[home]
        for block_id in block_ids:
            unused.pop(block_id, None)
            self._num_held[hold][block_id] += 1
            self._settle(block_id)

    def drop_holder(self, block_ids: Iterable[int], hold: Hold, *, home: int) -> None:
        """For leases: one holder less of each, all blocks of that home; the first given is reused
        last."""
        unused = self._unused[home]
        for block_id in reversed(list(block_ids)):
            self._num_held[hold][block_id] -= 1
            self._settle(block_id)
            if self._states[block_id] in (BlockState.FREE, BlockState.CACHED):
                unused[block_id] = None
                is_free = self._states[block_id] is BlockState.FREE
                unused.move_to_end(block_id, last=not is_free)

    def turn(self, block_ids: Iterable[int], old: Hold, new: Hold) -> None:
        """For leases: one holder of each now holds it for another purpose."""
        for block_id in block_ids:
            self._num_held[old][block_id] -= 1
            self._num_held[new][block_id] += 1
            self._settle(block_id)

    def retire(self, lease: BlockHolder) -> None:
        """For leases: this one is released."""
        self._leases.discard(lease)

    def register(self, lease: BlockHolder) -> None:
        """For leases: a new one, or a fork."""
        self._leases.add(lease)

    def _hottest_of(
        self, unused: OrderedDict[int, None], max_blocks: int
    ) -> Iterator[tuple[int, int]]:
        last = len(unused) - 1
        coming = ((block_id, last - i) for i, block_id in enumerate(reversed(unused)))
        return islice((each for each in coming if each[0] in self._cache), max_blocks)

    def forget_name(self, block_id: int) -> None:
        """The only holder is about to write into a block. One that had a name may have been
        exported by it, to a reader that is late: it begins another generation."""
        if block_id in self._cache:
            self._cache.forget(block_id)
            self.generations[block_id] += 1

    def _settle(self, block_id: int) -> None:
        """Brings the state of a block in line with its holders."""
        state = self._expected_state(block_id)
        self._counts[self._states[block_id]] -= 1
        self._counts[state] += 1
        self._states[block_id] = state

    def _expected_state(self, block_id: int) -> BlockState:
        for hold, state in _STATE_OF_HOLD.items():
            if self._num_held[hold][block_id]:
                return state
        return BlockState.CACHED if block_id in self._cache else BlockState.FREE

    def check_invariants(self) -> list[str]:
        """Broken promises, in words; empty is good. Costs a walk over all blocks."""
        found = self._cache.check_invariants()
        holders = {hold: [0] * self.num_blocks for hold in Hold}
        for lease in self._leases:
            for block_id in lease.block_ids:
                holders[lease.hold][block_id] += 1
                if self.homes.home_of(block_id) != lease.home:
                    found.append(f"block {block_id} is held by a lease at home {lease.home}")
        for hold, counts in holders.items():
            if counts != list(self._num_held[hold]):
                found.append(f"blocks held as {hold.value} differ from what the leases say")
        for block_id, state in enumerate(self._states):
            if state is not self._expected_state(block_id):
                found.append(f"block {block_id} is {state.value} without a reason")
            if (self.num_holders(block_id) == 0) is not self.is_unused(block_id):
                found.append(f"block {block_id} is neither held nor unused, or both")
        if any(
            self.homes.home_of(block_id) != home
            for home, unused in enumerate(self._unused)
            for block_id in unused
        ):
            found.append("an unused block is listed at a home that is not its own")
        tally = {state: self._states.count(state) for state in BlockState}
        if tally != self._counts or sum(tally.values()) != self.num_blocks:
            found.append(f"block counts {self._counts} do not add up to {tally}")
        return found
