"""All nodes of a tree in no order, to be walked in slices while the tree changes.

    [ to be met ........ | met, or come since ]        the walk goes from the end to the beginning
                    self._num_left

Who goes leaves its place to the last one, which is then met once more at worst.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from router.index.node import Node


class NodeList:
    """Every node of the tree but its root is in it once; `Node.place` is where."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._num_left = 0
        self._is_walked = False

    def __iter__(self) -> Iterator[Node]:
        """The tree must not change meanwhile: for checks."""
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: Node) -> None:
        """It is new; a walk under way need not meet it."""
        node.place = len(self._nodes)
        self._nodes.append(node)

    def add_part_of(self, node: Node, part: Node) -> None:
        """`part` was cut off `node`: it is met if that one is still to be met."""
        self.add(part)
        if node.place < self._num_left:
            self._move(self._nodes[self._num_left], part.place)
            self._move(part, self._num_left)
            self._num_left += 1

    def remove(self, node: Node) -> None:
        """It has left the tree."""
        assert self._nodes[node.place] is node, "not in the tree"
        last = self._nodes.pop()
        if last is not node:
            self._move(last, node.place)
        self._num_left = min(self._num_left, len(self._nodes))

    def walk(self) -> Generator[Node, None, None]:
        """Every node that is there at the beginning and stays, and what is cut off it before it is
        met. The tree may change meanwhile. One walk at a time."""
        assert not self._is_walked, "walked twice at once"
        self._is_walked, self._num_left = True, len(self._nodes)
        try:
            while self._num_left:
                self._num_left -= 1
                yield self._nodes[self._num_left]
        finally:
            self._is_walked, self._num_left = False, 0

    def _move(self, node: Node, place: int) -> None:
        node.place = place
        self._nodes[place] = node
