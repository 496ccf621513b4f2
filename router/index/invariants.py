"""What must hold of a tree after every operation."""

from __future__ import annotations

from router.index.node import Node
from router.index.radix_tree import RadixTree
from router.index.structure import TreeStructure


def check_invariants(tree: RadixTree) -> None:
    """AssertionError names what is broken. Walks the whole tree: for tests and idle time."""
    structure = tree.structure
    nodes = _nodes_below(structure.root)
    for node in nodes:
        _check_node(structure, node)
    num_blocks = sum(node.num_blocks for node in nodes)
    assert num_blocks == len(structure.names) == tree.num_blocks, "a name has no block"
    assert set(structure.nodes) == set(nodes) and len(structure.nodes) == len(nodes), "other nodes"
    queued = list(structure.leaves)
    assert len(queued) == len(set(queued)), "a leaf is queued twice"
    assert set(queued) == {node for node in nodes if node.is_leaf}, "others are queued than leaves"
    assert structure.root.parent is None and not structure.root.holders, "the root is a block"


def _nodes_below(root: Node) -> list[Node]:
    found = list(root.children.values())
    for node in found:
        found.extend(node.children.values())
    return found


def _check_node(structure: TreeStructure, node: Node) -> None:
    assert node.num_blocks >= 1, "a run is empty"
    assert len(node.tokens) == node.num_blocks * structure.stride, "tokens and names differ"
    assert node.parent is not None, "a node without a parent is in the tree"
    assert node.parent.children[structure.key_of(node)] is node, "a parent has a wrong key"
    assert all(structure.names[name] is node for name in node.names), "a name points elsewhere"
    assert node.children or node.holders, "a leaf is held by nobody"
    child = node.only_child
    assert child is None or not node.agrees_with(child), "two runs that agree are not joined"
