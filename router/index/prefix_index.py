"""The router's belief about every worker's prefix cache.

    route -> expect(...) -> Expectation -> settle when the request ends
    a worker's events -> apply: stored and removed blocks, or cleared
    worker gone -> remove_worker: in no answer from now on -> sweep: its blocks go, in slices

One tree per block size; the names inside tell models and tenants apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.block_hash import pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index.radix_tree import RadixTree
from router.index.worker_slots import WorkerSlots


@dataclass(frozen=True, slots=True)
class PrefixMatches:
    """How many leading blocks of a prompt each worker holds; absent workers hold none."""

    num_blocks: dict[str, int]
    """By worker id."""

    def of(self, worker: WorkerKey) -> int:
        """Leading blocks that this worker holds."""
        return self.num_blocks.get(worker.worker_id, 0)


class Expectation:
    """What a request under way is going to leave in some workers' caches; settled once."""

    __slots__ = ("_index", "_packed", "_root", "_workers")

    def __init__(
        self, index: PrefixIndex, workers: list[WorkerKey], root: bytes, packed: bytes
    ) -> None:
        self._index = index
        self._workers = workers
        self._root = root
        self._packed = packed

    def settle(self, *, came_true: bool) -> None:
        """The request is over: with success its blocks are there, else events have told which.

        Idempotent. Blocks that a worker has removed meanwhile stay removed.
        """
        workers, self._workers = self._workers, []
        for worker in workers:
            self._index._settle(worker, self._root, self._packed, came_true=came_true)


class PrefixIndex:
    """Every call comes from the event loop's thread. Unknown workers hold nothing."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._slots = WorkerSlots()
        self._trees: dict[int, RadixTree] = {}
        self._retired: dict[int, int] = {}
        """By block size: the bits of removed workers that some node may still have."""
        self._is_swept = False

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

    def add_worker(self, worker: WorkerKey, block_size_tokens: int) -> None:
        """Before anything is said of a worker; its cache is taken to be empty."""
        self._slots.add(worker, block_size_tokens)
        if block_size_tokens not in self._trees:
            self._trees[block_size_tokens] = RadixTree(
                block_size_tokens, self._max_blocks, on_count=self._slots.count
            )

    def remove_worker(self, worker: WorkerKey) -> None:
        """From now on nothing is known of it, at once; `sweep` makes room of its blocks. Unknown
        ones are passed over."""
        if worker in self._slots:
            size = self._slots.block_size_of(worker)
            self._retired[size] = self._retired.get(size, 0) | self._slots.retire(worker)

    def sweep(self) -> Iterator[None]:
        """Takes out the blocks of removed workers, under a millisecond until each yield; what is
        called in between finds the index whole. A second sweep beside one has nothing to do."""
        if self._is_swept:
            return
        self._is_swept = True
        try:
            while self._retired:
                size, bits = next(iter(self._retired.items()))
                yield from self._trees[size].sweep(bits)
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

    def expect(self, workers: list[WorkerKey], root: bytes, packed: bytes) -> Expectation:
        """A request was sent that will leave its prompt's full blocks in these workers' caches."""
        known = [worker for worker in workers if worker in self._slots]
        for worker in known:
            tree = self._trees[self._slots.block_size_of(worker)]
            tree.expect(root, packed, self._slots.bit_of(worker))
        return Expectation(self, known, root, packed)

    def apply(self, worker: WorkerKey, change: CacheChange) -> int:
        """Takes in a worker's event; returns how many stored blocks fitted nothing known."""
        tree = self._tree_of(worker)
        if tree is None:
            return 0
        bit = self._slots.bit_of(worker)
        if change.cleared and self._slots.num_blocks_of(worker):
            tree.forget(bit)
        size = self._slots.block_size_of(worker)
        num_left_out = sum(
            0 if _store_run(tree, run, bit, size) else len(run) for run in _runs(change.stored)
        )
        tree.remove(change.removed, bit)
        return num_left_out

    def _settle(self, worker: WorkerKey, root: bytes, packed: bytes, *, came_true: bool) -> None:
        tree = self._tree_of(worker)
        if tree is not None:
            tree.settle(root, packed, self._slots.bit_of(worker), came_true=came_true)

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


def _store_run(tree: RadixTree, run: list[CachedBlock], bit: int, block_size_tokens: int) -> bool:
    if any(len(block.token_ids) != block_size_tokens for block in run):
        return False
    packed = pack_tokens([token_id for block in run for token_id in block.token_ids])
    return tree.store(run[0].parent, [block.name for block in run], packed, bit)
