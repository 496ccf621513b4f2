"""Where the bits of workers that are gone may still be, while a tree is swept of them in slices.

    every node with such a bit is pending, or stands below a pending one

The tree changes between two slices: whoever cuts or joins nodes tells `split` and `joined`, so that
this stays true and no part is walked twice.
"""

from __future__ import annotations

from router.index.node import Node


class Sweep:
    """Of one tree; over when nothing is pending."""

    def __init__(self, root: Node) -> None:
        self._pending = dict.fromkeys(root.children.values())

    def pop(self) -> Node | None:
        """Any pending node that is still in the tree, its children pending instead; None at the
        end."""
        while self._pending:
            node, _ = self._pending.popitem()
            if node.parent is not None:
                self._pending.update(dict.fromkeys(node.children.values()))
                return node
        return None

    def split(self, node: Node, front: Node) -> None:
        """`front` has become the parent of `node`, and has its bits."""
        if node in self._pending:
            self._pending[front] = None

    def joined(self, gone: Node, stays: Node) -> None:
        """One node has taken in the other."""
        if gone in self._pending:
            del self._pending[gone]
            self._pending[stays] = None
