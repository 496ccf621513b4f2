"""The router's belief about every worker's prefix cache.

    route -> expect(...) -> Expectation -> settle when the request ends
    a worker's events -> apply: stored and removed blocks
    cleared | worker gone -> what was known is in no answer from now on
                          -> sweep: what is expected is known again, the rest goes, in slices

One tree per block size; the names inside tell models and tenants apart.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import msgspec

from cluster.block_hash import pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index.open_expectations import Expectation, OpenExpectations
from router.index.radix_tree import RadixTree
from router.index.worker_slots import WorkerSlots


class PrefixMatches(msgspec.Struct, frozen=True):
    """How many leading blocks of a prompt each worker holds; absent workers hold none."""

    num_blocks: dict[str, int]
    """By worker id."""

    def of(self, worker: WorkerKey) -> int:
        """Leading blocks that this worker holds."""
        return self.num_blocks.get(worker.worker_id, 0)


OnExpected = Callable[[Sequence[WorkerKey], bytes, bytes], None]
"""(workers, root, packed): of them something is expected that nobody knew of."""


class PrefixIndex:
    """Every call comes from the event loop's thread. Unknown workers hold nothing."""

    def __init__(self, max_blocks: int, *, has_digests: bool = False) -> None:
        """`has_digests`: what workers hold can be compared with what others believe."""
        self._max_blocks = max_blocks
        self._has_digests = has_digests
        self._slots = WorkerSlots()
        self._trees: dict[int, RadixTree] = {}
        self._retired: dict[int, int] = {}
        """By block size: bits that are nobody's any more and that some node may still have."""
        self._open = OpenExpectations()
        self._is_swept = False
        self._watchers: list[OnExpected] = []

    @property
    def num_blocks(self) -> int:
        """Blocks remembered, each counted once however many workers hold it."""
        return sum(tree.num_blocks for tree in self._trees.values())

    @property
    def trees(self) -> list[RadixTree]:
        """One per block size; for checks."""
        return list(self._trees.values())

    def num_blocks_of(self, worker: WorkerKey) -> int:
        """Blocks that one worker is believed to hold."""
        return self._slots.num_blocks_of(worker)

    def digest_of(self, worker: WorkerKey) -> int:
        """Of all that it is believed to hold, expectations apart; 0 where there are no digests."""
        return self._slots.digest_of(worker)

    def watch(self, on_expected: OnExpected) -> None:
        """`on_expected` hears of all that is expected here first; must return at once."""
        self._watchers.append(on_expected)

    def add_worker(self, worker: WorkerKey, block_size_tokens: int) -> None:
        """Before anything is said of a worker; its cache is taken to be empty."""
        self._slots.add(worker, block_size_tokens)
        if block_size_tokens not in self._trees:
            self._trees[block_size_tokens] = RadixTree(
                block_size_tokens,
                self._max_blocks,
                on_count=self._slots.count,
                on_held=self._slots.hold if self._has_digests else None,
            )

    def remove_worker(self, worker: WorkerKey) -> None:
        """From now on nothing is known of it, at once; `sweep` makes room of its blocks. Unknown
        ones are passed over."""
        if worker in self._slots:
            self._open.forget(worker)
            self._retire(worker)

    @property
    def needs_sweep(self) -> bool:
        """True while something was forgotten whose room is still taken."""
        return bool(self._retired)

    def sweep(self) -> Generator[None, None, None]:
        """Takes out what was forgotten, all but what is expected, under a millisecond until each
        yield; what is called in between finds the index whole. A second sweep beside one has
        nothing to do."""
        if self._is_swept:
            return
        self._is_swept = True
        try:
            while self._retired:
                yield from self._move_expected()
                size, bits = next(iter(self._retired.items()))
                for _ in self._trees[size].sweep(bits):
                    yield from self._move_expected()  # of who was cleared meanwhile
                    yield
                self._slots.free(bits)
                self._retired[size] &= ~bits
                if not self._retired[size]:
                    del self._retired[size]
        finally:
            self._is_swept = False

    def match(self, root: bytes, packed: bytes, block_size_tokens: int) -> PrefixMatches:
        """Who holds how much of a packed prompt below a chain root (`cluster.block_hash`)."""
        tree = self._trees.get(block_size_tokens)
        found: dict[str, int] = {}
        for num_blocks, bits in tree.match(root, packed) if tree else ():
            found.update(dict.fromkeys(self._slots.ids_of(bits), num_blocks))
        return PrefixMatches(found)

    def expect(
        self, workers: list[WorkerKey], root: bytes, packed: bytes, *, is_told: bool = False
    ) -> Expectation:
        """A request was sent that will leave its prompt's full blocks in these workers' caches.
        `is_told`: another router has sent it."""
        known = [worker for worker in workers if worker in self._slots]
        news = [worker for worker in known if self._expect_of(worker, root, packed)]
        expectation = Expectation(self._settle, known, root, packed, is_told=is_told)
        self._open.add(expectation)
        if news and not is_told:
            for on_expected in self._watchers:
                on_expected(news, root, packed)
        return expectation

    def _expect_of(self, worker: WorkerKey, root: bytes, packed: bytes) -> bool:
        tree = self._trees[self._slots.block_size_of(worker)]
        return tree.expect(root, packed, self._slots.bit_of(worker))

    def apply(self, worker: WorkerKey, change: CacheChange) -> int:
        """Takes in a worker's event; returns how many stored blocks fitted nothing known.

        After one that cleared, `sweep` makes room.
        """
        tree = self._tree_of(worker)
        if tree is None:
            return 0
        if change.cleared:
            self._clear(worker)
        bit, former = self._slots.bit_of(worker), self._open.former_bits(worker)
        size = self._slots.block_size_of(worker)
        num_left_out = 0
        for run in _runs(change.stored):
            packed = _packed(run, size)
            names = [block.name for block in run]
            if packed is None or not tree.store(run[0].parent, names, packed, bit, former=former):
                num_left_out += len(run)
        tree.remove(change.removed, bit | former)
        return num_left_out

    def _clear(self, worker: WorkerKey) -> None:
        """At once, however much it held: by a bit that no node has yet. What is still to come is
        expected anew by the sweep."""
        if not self._slots.num_blocks_of(worker):
            return
        size = self._slots.block_size_of(worker)
        old = self._retire(worker)
        self._slots.add(worker, size)
        self._open.move(worker, old)

    def _move_expected(self) -> Iterator[None]:
        """Until no former bit stands for anybody: then none of them is needed in the tree."""
        while (move := self._open.next_move()) is not None:
            tree = self._tree_of(move.worker)
            assert tree is not None, "nothing is expected of who is gone"
            bit, asked = self._slots.bit_of(move.worker), move.expectation
            tree.expect_anew(asked.root, asked.packed, move.former, bit)
            yield

    def _retire(self, worker: WorkerKey) -> int:
        size = self._slots.block_size_of(worker)
        bit = self._slots.retire(worker)
        self._retired[size] = self._retired.get(size, 0) | bit
        return bit

    def _settle(self, expectation: Expectation, came_true: bool) -> None:
        root, packed = expectation.root, expectation.packed
        for worker in expectation.workers:
            tree = self._tree_of(worker)
            if tree is not None:
                bit, former = self._slots.bit_of(worker), self._open.former_bits(worker)
                tree.settle(root, packed, bit, came_true=came_true, former=former)
        self._open.remove(expectation)

    def _tree_of(self, worker: WorkerKey) -> RadixTree | None:
        return self._trees[self._slots.block_size_of(worker)] if worker in self._slots else None


def _runs(blocks: list[CachedBlock]) -> Iterator[list[CachedBlock]]:
    """Consecutive blocks of which each follows the one before."""
    run: list[CachedBlock] = []
    for block in blocks:
        if run and block.parent != run[-1].name:
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def _packed(run: list[CachedBlock], block_size_tokens: int) -> bytes | None:
    """Its tokens; None where a block has not the size of its worker's."""
    if any(len(block.token_ids) != block_size_tokens for block in run):
        return None
    return pack_tokens([token_id for block in run for token_id in block.token_ids])
