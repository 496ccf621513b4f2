"""Which of a worker's cached prefixes others take over, and who takes which. Pure.

choose    the blocks that were used last, each with all before it, as far as the limit goes
share     hottest first: to whom has taken the beginning of one, else to who has most room left

Both tell a prefix by the name of its last block, and visit each block a bounded number of times:
thousands of prefixes may share a beginning of thousands of blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.identity import WorkerKey
from worker.exchange.warm_tree import WarmTree


def choose(tree: WarmTree, max_blocks: int) -> list[bytes]:
    """The last blocks of the prefixes that at most so many different blocks make, hottest first.

    A block is as hot as the hottest behind it: of a prefix that is too long its beginning is
    chosen.
    """
    taken = sorted(tree, key=tree.heat, reverse=True)[: max(0, max_blocks)]
    inner = {tree.parent(name) for name in taken}
    return [name for name in taken if name not in inner]


def share(
    tree: WarmTree, ends: Sequence[bytes], room_blocks: Mapping[WorkerKey, int]
) -> dict[WorkerKey, list[bytes]]:
    """Who takes which, in the order in which it does; of what has no room anywhere, the beginning
    that has."""
    sharing = _Sharing(tree, room_blocks)
    if room_blocks:
        for end in ends:
            sharing.give(end)
    return sharing.shares


class _Sharing:
    """A block that nobody had room for has none later either: rooms only shrink."""

    def __init__(self, tree: WarmTree, room_blocks: Mapping[WorkerKey, int]) -> None:
        self.shares: dict[WorkerKey, list[bytes]] = {key: [] for key in room_blocks}
        self._tree = tree
        self._left = dict(room_blocks)
        self._holders: dict[bytes, list[WorkerKey]] = {}
        self._lost: set[bytes] = set()

    def give(self, end: bytes) -> None:
        """To one receiver, as much of its beginning as has room there."""
        new, before = self._new(end)
        if before in self._lost:
            self._lost.update(new)
            return
        to, new = self._receiver(end, new, self._holders.get(before, []) if before else [])
        fitting = new[: self._left[to]]
        self._lost.update(new[len(fitting) :])
        if not fitting:
            return
        self._left[to] -= len(fitting)
        self.shares[to].append(fitting[-1])
        for name in fitting:
            self._holders.setdefault(name, []).append(to)

    def _new(self, end: bytes) -> tuple[list[bytes], bytes | None]:
        """Blocks up to this one that nobody was given and nobody had no room for, and the one
        before them."""
        new: list[bytes] = []
        name: bytes | None = end
        while name is not None and name not in self._holders and name not in self._lost:
            new.append(name)
            name = self._tree.parent(name)
        return new[::-1], name

    def _receiver(
        self, end: bytes, new: list[bytes], holders: Sequence[WorkerKey]
    ) -> tuple[WorkerKey, list[bytes]]:
        """Who takes it, and what of it that one lacks."""
        most = max(self._left, key=self._left.__getitem__)
        if not holders:
            return most, new
        holder = max(holders, key=self._left.__getitem__)
        if self._left[holder] >= len(new) or self._left[most] < self._tree.depth(end):
            return holder, new
        way = self._tree.way_to(end)
        return most, [name for name in way if most not in self._holders.get(name, ())]
