"""A lease on blocks: the block table of one sequence, and the duty to give the blocks back.

All blocks of a lease are of one home (cluster/block_homes.py): it grows, copies and forks there.

    with lease_blocks(pool, "request", Hold.ACTIVE, home=0, num_new=4) as lease: ...

Moved explicitly from owner to owner; released once, whoever calls first.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from engine.memory.block_pool import BlockPool, Hold


def lease_blocks(
    pool: BlockPool,
    owner: str,
    hold: Hold,
    *,
    home: int,
    shared: Sequence[int] = (),
    num_new: int = 0,
) -> BlockLease | None:
    """Shares `shared`, blocks of `home`, as they are, and takes `num_new` fresh ones there; None:
    not enough now."""
    num_revived = sum(map(pool.is_unused, shared))
    if num_new + num_revived > pool.available_at(home):
        return None
    lease = BlockLease(pool, owner, hold, home=home)
    pool.register(lease)
    pool.add_holder(shared, hold, home=home)
    lease.block_ids.extend(shared)
    lease.block_ids.extend(pool.take(num_new, hold, home=home) or ())
    return lease


class BlockLease:
    """`block_ids` is in the order of the sequence; read it, but change it by methods only."""

    __slots__ = ("_pool", "block_ids", "hold", "home", "owner")

    def __init__(self, pool: BlockPool, owner: str, hold: Hold, *, home: int) -> None:
        self._pool = pool
        self.owner = owner
        self.hold = hold
        self.home = home
        self.block_ids: array[int] = array("i")

    def __len__(self) -> int:
        return len(self.block_ids)

    def extend(self) -> bool:
        """One more fresh block at the end; False: none is available now."""
        taken = self._pool.take(1, self.hold, home=self.home)
        self.block_ids.extend(taken or ())
        return taken is not None

    def fork(self, owner: str) -> BlockLease:
        """Another lease on the same blocks, for another sequence with the same beginning."""
        other = BlockLease(self._pool, owner, self.hold, home=self.home)
        self._pool.add_holder(self.block_ids, self.hold, home=self.home)
        other.block_ids.extend(self.block_ids)
        self._pool.register(other)
        return other

    def is_shared(self, index: int) -> bool:
        """True when the block at `index` of the sequence has other holders."""
        return self._pool.num_holders(self.block_ids[index]) > 1

    def own(self, index: int) -> tuple[int, int] | None:
        """Makes the block at `index` writable; needs one available block at its home when shared.

        Returns (source, target) when the caller must copy the bytes, else None.
        """
        source = self.block_ids[index]
        if not self.is_shared(index):
            self._pool.forget_name(source)
            return None
        taken = self._pool.take(1, self.hold, home=self.home)
        assert taken is not None, "the scheduler plans a block for every copy"
        self.block_ids[index] = taken[0]
        self._pool.drop_holder((source,), self.hold, home=self.home)
        return source, taken[0]

    def trim(self, num_blocks: int) -> None:
        """Keeps the first `num_blocks`; those after them, all its own, are given back."""
        surplus = self.block_ids[num_blocks:]
        if surplus:
            del self.block_ids[num_blocks:]
            self._pool.drop_holder(surplus, self.hold, home=self.home)

    def turn(self, hold: Hold) -> None:
        """The same blocks, for another purpose."""
        if hold is not self.hold:
            self._pool.turn(self.block_ids, self.hold, hold)
            self.hold = hold

    def release(self) -> None:
        """Gives every block back; the second call does nothing."""
        self._pool.drop_holder(self.block_ids, self.hold, home=self.home)
        self.block_ids = array("i")
        self._pool.retire(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
