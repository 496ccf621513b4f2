"""What must hold of a tree after every operation."""

from __future__ import annotations

from router.index.node import Node
from router.index.radix_tree import RadixTree
from router.index.structure import TreeStructure


def check_invariants(tree: RadixTree) -> None:
    """AssertionError names what is broken. Walks the whole tree: for tests and idle time."""
    structure = tree.structure
    nodes = structure.nodes()
    for node in nodes:
        _check_node(structure, node)
    num_blocks = sum(node.num_blocks for node in nodes)
    assert num_blocks == len(structure.names) == tree.num_blocks, "a name has no block"
    queued = {node for _, _, node in structure.leaves._heap}
    assert all(node in queued for node in nodes if node.is_leaf), "a leaf can never be dropped"
    assert structure.root.parent is None and not structure.root.holders, "the root is a block"


def _check_node(structure: TreeStructure, node: Node) -> None:
    assert node.num_blocks >= 1, "a run is empty"
    assert len(node.tokens) == node.num_blocks * structure.stride, "tokens and names differ"
    assert node.parent is not None, "a node without a parent is in the tree"
    assert node.parent.children[structure.key_of(node)] is node, "a parent has a wrong key"
    assert all(structure.names[name] is node for name in node.names), "a name points elsewhere"
    assert node.children or node.holders, "a leaf is held by nobody"
    child = node.only_child
    assert child is None or not node.agrees_with(child), "two runs that agree are not joined"
