"""The leaves of the tree by last use, so that the stalest is found without a search.

Entries may be out of date: a leaf used since is put back with its true time, a node that is no
leaf any more is skipped. Rebuilt when it has doubled, so that dead entries stay bounded.
"""

from __future__ import annotations

import heapq
from itertools import count

from router.index.node import Node

MIN_REBUILD = 64


class LeafQueue:
    """Every leaf of the tree has at least one entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._tie = count()
        self._rebuild_at = MIN_REBUILD

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, leaf: Node) -> None:
        """A node became a leaf."""
        heapq.heappush(self._heap, (leaf.used, next(self._tie), leaf))
        if len(self._heap) >= self._rebuild_at:
            self._rebuild()

    def pop_stalest(self) -> Node | None:
        """Takes out the leaf that was used least recently."""
        while self._heap:
            used, _, node = heapq.heappop(self._heap)
            if not node.is_leaf:
                continue
            if node.used == used:
                return node
            heapq.heappush(self._heap, (node.used, next(self._tie), node))
        return None

    def _rebuild(self) -> None:
        leaves = {node: None for _, _, node in self._heap if node.is_leaf}
        self._heap = [(node.used, next(self._tie), node) for node in leaves]
        heapq.heapify(self._heap)
        self._rebuild_at = max(MIN_REBUILD, 2 * len(self._heap))
