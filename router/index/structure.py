"""Cutting and joining runs: the shape of the tree, whoever holds what.

`names` maps every block's name to its node. A cut or a join renames the smaller half only, so that
a long run which loses block after block costs little each time.
"""

from __future__ import annotations

from router.index.leaf_queue import LeafQueue
from router.index.node import Node
from router.index.node_list import NodeList


class TreeStructure:
    """Nodes, their names and leaves. `stride` is the size of a block in packed bytes."""

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self.root = Node(None, b"", [], 0)
        self.names: dict[bytes, Node] = {}
        self.leaves = LeafQueue()
        self.nodes = NodeList()

    def key_of(self, node: Node) -> bytes:
        """Under which its parent knows it."""
        return node.names[0] if node.parent is self.root else node.tokens[: self.stride]

    def attach(self, parent: Node, tokens: bytes, names: list[bytes], used: int) -> Node:
        """A new leaf below `parent`; nobody holds it yet."""
        node = Node(parent, tokens, names, used)
        if parent.is_leaf:
            self.leaves.remove(parent)
        parent.children[self.key_of(node)] = node
        self.names.update(dict.fromkeys(names, node))
        self.leaves.add(node)
        self.nodes.add(node)
        return node

    def drop(self, leaf: Node) -> None:
        """Takes a leaf out of the tree."""
        parent = leaf.parent
        assert parent is not None and not leaf.children
        self.leaves.remove(leaf)
        self.nodes.remove(leaf)
        del parent.children[self.key_of(leaf)]
        for name in leaf.names:
            del self.names[name]
        leaf.parent = None
        if parent.is_leaf:
            self.leaves.add(parent)

    def cut(self, node: Node, num_blocks: int) -> tuple[Node, Node | None]:
        """The run of the first `num_blocks` blocks, and that of the rest (None when empty)."""
        if num_blocks == node.num_blocks:
            return node, None
        at_end = 2 * num_blocks >= node.num_blocks
        return (
            self._cut_off_rest(node, num_blocks)
            if at_end
            else self._cut_off_front(node, num_blocks)
        )

    def join(self, front: Node, rest: Node) -> Node:
        """One run out of a node and its only child, which agree; returns the node that stays."""
        used = max(front.used, rest.used)
        stays = (
            self._append(front, rest)
            if front.num_blocks >= rest.num_blocks
            else self._prepend(front, rest)
        )
        stays.used = used
        self.nodes.remove(rest if stays is front else front)
        return stays

    def _cut_off_rest(self, node: Node, num_blocks: int) -> tuple[Node, Node]:
        size = num_blocks * self.stride
        rest = Node(node, node.tokens[size:], node.names[num_blocks:], node.used)
        rest.held, rest.expected = node.held, node.expected
        rest.adopt(node.children)
        node.tokens = node.tokens[:size]
        del node.names[num_blocks:]
        node.children = {self.key_of(rest): rest}
        self.names.update(dict.fromkeys(rest.names, rest))
        if rest.is_leaf:
            self.leaves.replace(node, rest)
        self.nodes.add_part_of(node, rest)
        return node, rest

    def _cut_off_front(self, node: Node, num_blocks: int) -> tuple[Node, Node]:
        size, parent = num_blocks * self.stride, node.parent
        assert parent is not None
        front = Node(parent, node.tokens[:size], node.names[:num_blocks], node.used)
        front.held, front.expected = node.held, node.expected
        parent.children[self.key_of(node)] = front
        node.tokens = node.tokens[size:]
        del node.names[:num_blocks]
        node.parent = front
        front.children = {self.key_of(node): node}
        self.names.update(dict.fromkeys(front.names, front))
        self.nodes.add_part_of(node, front)
        return front, node

    def _append(self, front: Node, rest: Node) -> Node:
        if rest.is_leaf:
            self.leaves.replace(rest, front)
        front.tokens += rest.tokens
        front.names += rest.names
        front.adopt(rest.children)
        self.names.update(dict.fromkeys(rest.names, front))
        rest.parent, rest.children = None, {}
        return front

    def _prepend(self, front: Node, rest: Node) -> Node:
        parent = front.parent
        assert parent is not None
        parent.children[self.key_of(front)] = rest
        rest.tokens = front.tokens + rest.tokens
        rest.names[:0] = front.names
        rest.parent = parent
        self.names.update(dict.fromkeys(front.names, rest))
        front.parent, front.children = None, {}
        return rest
