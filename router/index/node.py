"""A node of the radix tree: a run of blocks that always go together.

Workers are bits of two masks. `held` says what events or finished requests have confirmed,
`expected` what a request under way is going to leave there. A worker's bit covers all blocks of
the node, else the node is split.
"""

from __future__ import annotations


class Node:
    """`tokens` are packed, whole blocks; `names[i]` is the name of the i-th block."""

    __slots__ = (
        "children",
        "expected",
        "held",
        "names",
        "newer",
        "older",
        "parent",
        "place",
        "queued",
        "tokens",
        "used",
    )

    def __init__(self, parent: Node | None, tokens: bytes, names: list[bytes], used: int) -> None:
        self.parent = parent
        """None for the root, and for a node that has left the tree."""
        self.tokens = tokens
        self.names = names
        self.used = used
        """The tree's clock when this run was last matched or stored."""
        self.children: dict[bytes, Node] = {}
        """Keyed by the first block: its bytes, or its name for children of the root."""
        self.older: Node | None = None
        self.newer: Node | None = None
        """Its neighbours among the leaves; a node that is none has none."""
        self.queued = used
        """`used` as it was when it got its place among them."""
        self.place = 0
        """Among all nodes of the tree."""
        self.held = 0
        self.expected = 0

    @property
    def num_blocks(self) -> int:
        """Blocks in the run."""
        return len(self.names)

    @property
    def holders(self) -> int:
        """Bits of the workers that hold, or soon will hold, all blocks of the run."""
        return self.held | self.expected

    @property
    def is_leaf(self) -> bool:
        """True for a node in the tree that nothing follows."""
        return self.parent is not None and not self.children

    @property
    def only_child(self) -> Node | None:
        """What follows, when there is one way on."""
        return next(iter(self.children.values())) if len(self.children) == 1 else None

    def agrees_with(self, other: Node) -> bool:
        """True when the same workers hold and expect both runs."""
        return self.held == other.held and self.expected == other.expected

    def position_of(self, name: bytes) -> int:
        """Index of a block in the run; the end is looked at first: that is where runs change."""
        if self.names[-1] == name:
            return len(self.names) - 1
        return self.names.index(name)

    def adopt(self, children: dict[bytes, Node]) -> None:
        """Becomes the parent of another node's children."""
        self.children = children
        for child in children.values():
            child.parent = self


def num_common_blocks(edge: bytes, packed: bytes, start: int, stride: int) -> int:
    """How many whole blocks of `edge` are found in `packed` at `start`; by halving."""
    low, high = 0, min(len(edge), len(packed) - start) // stride
    while low < high:
        middle = (low + high + 1) // 2
        begin, end = low * stride, middle * stride
        if edge[begin:end] == packed[start + begin : start + end]:
            low = middle
        else:
            high = middle - 1
    return low
