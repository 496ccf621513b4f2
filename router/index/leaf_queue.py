"""The leaves of the tree, about by last use: a ring through the leaves themselves.

    seam -- the next to go -- ... -- the last to go -- (seam)

Who is used is not moved, a match has enough to do: it is put at the end when its turn to go has
come. Every call costs the same, however many leaves there are, and what leaves the tree leaves
nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator

from router.index.node import Node

MAX_LOOKS = 64
"""How many leaves are looked at, to find one to go."""


class LeafQueue:
    """Every leaf of the tree is in it once, and nothing else."""

    def __init__(self) -> None:
        self._seam = Node(None, b"", [], 0)
        """Between the last to go and the next."""
        self._seam.older = self._seam.newer = self._seam

    def __iter__(self) -> Iterator[Node]:
        """The next to go first; for checks."""
        leaf = self._seam.newer
        while leaf is not self._seam:
            assert leaf is not None
            yield leaf
            leaf = leaf.newer

    def stalest(self) -> Node | None:
        """The leaf that was used least recently of those that were looked at: up to the first that
        was not used since it got its place."""
        stalest: Node | None = None
        for _ in range(MAX_LOOKS):
            leaf = self._seam.newer
            if leaf is None or leaf is self._seam:
                return stalest
            if stalest is None or leaf.used < stalest.used:
                stalest = leaf
            if leaf.used == leaf.queued:
                return stalest
            self.remove(leaf)
            self._put_last(leaf)
        return stalest

    def add(self, leaf: Node) -> None:
        """A node became a leaf; one that is staler than all others is the next to go."""
        first = self._seam.newer
        if first is not None and first is not self._seam and leaf.used <= first.queued:
            self._put_before(first, leaf)
            leaf.queued = leaf.used
        else:
            self._put_last(leaf)

    def replace(self, leaf: Node, successor: Node) -> None:
        """`successor` has become the leaf in its place."""
        newer = leaf.newer
        assert newer is not None, "not a leaf"
        self.remove(leaf)
        self._put_before(newer, successor)
        successor.queued = leaf.queued

    def remove(self, leaf: Node) -> None:
        """It is no leaf any more."""
        older, newer = leaf.older, leaf.newer
        assert older is not None and newer is not None, "not a leaf"
        older.newer, newer.older = newer, older
        leaf.older = leaf.newer = None

    def _put_last(self, leaf: Node) -> None:
        self._put_before(self._seam, leaf)
        leaf.queued = leaf.used

    def _put_before(self, newer: Node, leaf: Node) -> None:
        older = newer.older
        assert older is not None and leaf.newer is None
        leaf.older, leaf.newer = older, newer
        older.newer = newer.older = leaf
