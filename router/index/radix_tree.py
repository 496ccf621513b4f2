"""A compressed radix tree over the tokens of KV blocks: who holds which beginning of a prompt.

    root -- name of the first block --> node "a b c" -- bytes of d --> node "d e"
                                                     '- bytes of x --> node "x"

The first block is found by its name, which stands for model, tenant and tokens; below it edges are
compared as bytes (one memcmp), and nothing is hashed. A node is cut where workers differ and
joined again when they agree, so the tree does not grow under churn. When it is full, the leaf
that was used least recently goes, or one about as stale; a counter of operations is the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import accumulate

from cluster.block_hash import TOKEN_BYTES, chain_names
from router.index.node import Node, num_common_blocks
from router.index.structure import TreeStructure

Step = tuple[int, int]
"""(num_blocks, bits): these workers hold the first `num_blocks` blocks; a later step says more."""
SLICE_STEPS = 1024
"""Of one slice of a sweep: a node that is passed over is one step, one that is changed takes
CHANGE_STEPS and one for each of its blocks. 0.2 ms, at most 0.8 (10^6 blocks of 16,000, 100,000 and
10^6 prompts, 2-core machine)."""
CHANGE_STEPS = 16
NamesFrom = Callable[[Node, int], list[bytes]]
"""(parent, num_blocks known) -> the names of the blocks that follow."""


class RadixTree:
    """Workers are single bits here; see `PrefixIndex` for their names.

    `on_count(bits, num_blocks)` hears what the workers of `bits` gained, or lost (negative);
    `on_held(gained, lost, names)`, where it is given, of blocks that they hold or hold no more.
    """

    def __init__(
        self,
        block_size_tokens: int,
        max_blocks: int,
        *,
        on_count: Callable[[int, int], None] = lambda bits, num_blocks: None,
        on_held: Callable[[int, int, list[bytes]], None] | None = None,
    ) -> None:
        self._block_size_tokens = block_size_tokens
        self._stride = block_size_tokens * TOKEN_BYTES
        self._max_blocks = max_blocks
        self._on_count = on_count
        self._on_held = on_held
        self._clock = 0
        self.structure = TreeStructure(self._stride)

    @property
    def num_blocks(self) -> int:
        """Blocks in the tree, each counted once."""
        return len(self.structure.names)

    def match(self, root_name: bytes, packed: bytes) -> list[Step]:
        """Who holds how much of the beginning of `packed`: a worker's last step is its answer."""
        stride, steps = self._stride, list[Step]()
        self._clock = now = self._clock + 1
        node = self.structure.root.children.get(self._first_name(root_name, packed))
        start, reach = 0, -1
        while node is not None:
            still = reach & (node.held | node.expected)
            if still != reach and start:
                steps.append((start // stride, reach))
            reach = still
            if not reach:
                return steps
            node.used = now
            if not packed.startswith(node.tokens, start):
                start += num_common_blocks(node.tokens, packed, start, stride) * stride
                break
            start += len(node.tokens)
            node = node.children.get(packed[start : start + stride])
        if start:
            steps.append((start // stride, reach))
        return steps

    def expect(self, root_name: bytes, packed: bytes, bit: int) -> bool:
        """A worker is going to hold all full blocks of `packed`. True where that is news of one."""
        whole = self._whole(packed)
        if not whole:
            return False

        def names_from(parent: Node, num_known: int) -> list[bytes]:
            return chain_names(
                whole[num_known * self._stride :],
                parent=parent.names[-1] if parent.names else root_name,
                block_size_tokens=self._block_size_tokens,
            )

        first = self._first_name(root_name, whole)
        path = self._cover(self.structure.root, first, whole, names_from)
        is_news = any(not node.holders & bit for node in path)
        for node in path:
            self._mark(node, node.held, node.expected | bit)
        self._tidy(path)
        self._shrink()
        return is_news

    def settle(
        self, root_name: bytes, packed: bytes, bit: int, *, came_true: bool, former: int = 0
    ) -> None:
        """Ends an expectation: what is left of it becomes held, or is forgotten.

        `former`: bits that the worker had before, by which it may still be expected.
        """
        whole = self._whole(packed)
        first = self._first_name(root_name, whole)
        path = self._cover(self.structure.root, first, whole, None)
        for node in path:
            if node.expected & (bit | former):
                held = node.held | (bit if came_true else 0)
                self._mark(node, held, node.expected & ~(bit | former))
        self._tidy(path)

    def store(
        self,
        parent: bytes | None,
        names: list[bytes],
        packed: bytes,
        bit: int,
        *,
        former: int = 0,
    ) -> bool:
        """A worker holds this run. False when it does not fit to what is known, and is left out.

        That is: an unknown parent, or names and tokens that contradict what others said. `former`
        as in `settle`.
        """
        above = self.structure.root if parent is None else self.structure.names.get(parent)
        if above is None or len(set(names)) != len(names):
            return False
        if parent is not None:
            above, _ = self.structure.cut(above, above.position_of(parent) + 1)
        key = names[0] if parent is None else packed[: self._stride]
        path = self._cover(above, key, packed, lambda _, num_known: names[num_known:])
        fits = _fits(path, names)
        for node in path if fits else []:
            self._mark(node, node.held | bit, node.expected & ~(bit | former))
        self._tidy([above, *path])
        self._shrink()
        return fits

    def remove(self, names: list[bytes], bits: int) -> None:
        """A worker holds these blocks no more, by none of its bits; names that are not known are
        passed over."""
        gone = set(names)
        for name in names:
            node = self.structure.names.get(name)
            if node is None or not node.holders & bits:
                continue
            if not gone.issuperset(node.names):
                node = self._isolate(node, *_run_of(gone, node.names, node.position_of(name)))
            self._mark(node, node.held & ~bits, node.expected & ~bits)
            self._tidy([node])

    def expect_anew(self, root_name: bytes, packed: bytes, former: int, new: int) -> None:
        """A worker has another bit now: what is left of an expectation has it too."""
        whole = self._whole(packed)
        path = self._cover(self.structure.root, self._first_name(root_name, whole), whole, None)
        for node in path:
            if node.expected & former:
                self._mark(node, node.held, node.expected | new)
        self._tidy(path)

    def sweep(self, bits: int) -> Iterator[None]:
        """Takes bits that are nobody's any more out of the tree, a slice until each yield.

        In between the tree may be used, but for these bits. One sweep at a time.
        """
        steps_left = SLICE_STEPS
        with closing(self.structure.nodes.walk()) as nodes:
            for node in nodes:
                steps_left -= 1
                if node.holders & bits:
                    steps_left -= CHANGE_STEPS + node.num_blocks
                    self._mark(node, node.held & ~bits, node.expected & ~bits)
                    self._tidy_up_from(node)
                if steps_left <= 0:
                    yield
                    steps_left = SLICE_STEPS

    def _whole(self, packed: bytes) -> bytes:
        return packed[: len(packed) - len(packed) % self._stride]

    def _first_name(self, root_name: bytes, packed: bytes) -> bytes:
        first = packed[: self._stride]
        names = chain_names(first, parent=root_name, block_size_tokens=self._block_size_tokens)
        return names[0] if names else b""

    def _cover(
        self, parent: Node, key: bytes, packed: bytes, names_from: NamesFrom | None
    ) -> list[Node]:
        """The nodes below `parent` that are exactly the blocks of `packed`, cut to fit.

        What is missing is made, when names are given, else left out.
        """
        path: list[Node] = []
        start, size = 0, len(packed)
        self._clock += 1
        while start < size:
            node = parent.children.get(key)
            if node is None:
                path += self._attach(parent, packed[start:], names_from, start // self._stride)
                break
            num_common = num_common_blocks(node.tokens, packed, start, self._stride)
            if not num_common:
                break
            parent, _ = self.structure.cut(node, num_common)
            parent.used = self._clock
            path.append(parent)
            start += num_common * self._stride
            key = packed[start : start + self._stride]
        return path

    def _attach(
        self, parent: Node, packed: bytes, names_from: NamesFrom | None, num_known: int
    ) -> list[Node]:
        names = names_from(parent, num_known) if names_from else []
        if not names or not self.structure.names.keys().isdisjoint(names):
            return []
        return [self.structure.attach(parent, packed, names, self._clock)]

    def _isolate(self, node: Node, first: int, end: int) -> Node:
        """The blocks from `first` to before `end` as a node of their own."""
        node, _ = self.structure.cut(node, end)
        if first == 0:
            return node
        _, run = self.structure.cut(node, first)
        assert run is not None
        return run

    def _mark(self, node: Node, held: int, expected: int) -> None:
        if self._on_held is not None and held != node.held:
            self._on_held(held & ~node.held, node.held & ~held, node.names)
        before, after = node.holders, held | expected
        node.held, node.expected = held, expected
        if after & ~before:
            self._on_count(after & ~before, node.num_blocks)
        if before & ~after:
            self._on_count(before & ~after, -node.num_blocks)

    def _tidy(self, touched: Iterable[Node]) -> None:
        """Drops leaves that nobody holds and joins runs that agree."""
        for node in touched:
            self._tidy_up_from(node)

    def _tidy_up_from(self, node: Node) -> None:
        while (parent := node.parent) is not None:
            while (child := node.only_child) is not None and node.agrees_with(child):
                node = self.structure.join(node, child)
            if node.children or node.holders:
                if parent.parent is not None and parent.only_child and parent.agrees_with(node):
                    self.structure.join(parent, node)
                return
            self.structure.drop(node)
            node = parent

    def _shrink(self) -> None:
        while self.num_blocks > self._max_blocks:
            leaf = self.structure.leaves.stalest()
            assert leaf is not None
            self._mark(leaf, 0, 0)
            self._tidy_up_from(leaf)


def _run_of(gone: set[bytes], names: list[bytes], position: int) -> tuple[int, int]:
    """The longest run of blocks around `position` that all go: (first, end)."""
    first, end = position, position + 1
    while first and names[first - 1] in gone:
        first -= 1
    while end < len(names) and names[end] in gone:
        end += 1
    return first, end


def _fits(path: list[Node], names: list[bytes]) -> bool:
    """True when consecutive nodes are all blocks of these names."""
    ends = list(accumulate(node.num_blocks for node in path))
    return (
        bool(ends)
        and ends[-1] == len(names)
        and all(node.names[-1] == names[end - 1] for node, end in zip(path, ends, strict=True))
    )
