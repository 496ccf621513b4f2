"""A worker whose cache is told anew: what it held is unknown at once, however much that was, and
its room comes in slices; what is still to come stays expected, and no count is ever wrong."""

import functools
import random
from collections.abc import Iterator

import pytest

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index import radix_tree
from router.index.invariants import check_invariants
from router.index.open_expectations import Expectation
from router.index.prefix_index import PrefixIndex

ROOT = cache_root("pair")
WORKERS = [WorkerKey(f"d{number}", "i") for number in range(3)]
PROMPTS = [[number >> bit & 1 for bit in range(6)] for number in range(64)]


def names_of(prompt: list[int]) -> list[bytes]:
    return list(_names_of(pack_tokens(prompt)))


@functools.cache
def _names_of(packed: bytes) -> list[bytes]:
    return chain_names(packed, parent=ROOT, block_size_tokens=1)


def blocks(prompt: list[int]) -> list[CachedBlock]:
    names = names_of(prompt)
    parents = [None, *names]
    return [CachedBlock(name, parents[i], prompt[i : i + 1]) for i, name in enumerate(names)]


def new_index(*workers: WorkerKey) -> PrefixIndex:
    index = PrefixIndex(100_000)
    for worker in workers:
        index.add_worker(worker, 1)
    return index


class NaiveIndex:
    """For each worker the names it holds and expects."""

    def __init__(self) -> None:
        self.held: dict[WorkerKey, set[bytes]] = {worker: set() for worker in WORKERS}
        self.expected: dict[WorkerKey, set[bytes]] = {worker: set() for worker in WORKERS}

    def beliefs(self) -> list[dict[str, int]]:
        known = {key.worker_id: self.held[key] | self.expected[key] for key in WORKERS}
        return [
            {worker: num for worker in known if (num := num_matched(known[worker], prompt))}
            for prompt in PROMPTS
        ]

    def counts(self) -> list[int]:
        return [len(self.held[worker] | self.expected[worker]) for worker in WORKERS]

    def settle(self, worker: WorkerKey, names: list[bytes], *, came_true: bool) -> None:
        still = self.expected[worker].intersection(names)
        self.expected[worker] -= still
        self.held[worker] |= still if came_true else set()


def num_matched(known: set[bytes], prompt: list[int]) -> int:
    names = _names_of(pack_tokens(prompt))
    return next((i for i, name in enumerate(names) if name not in known), len(names))


class Both:
    """The same happens to the index and to the model; some slices of a sweep are done at times."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.index, self.model = new_index(*WORKERS), NaiveIndex()
        self.open: list[tuple[Expectation, WorkerKey, list[bytes]]] = []
        self._slices: Iterator[None] = iter(())

    def one_change(self) -> None:
        worker, chance = self.random.choice(WORKERS), self.random
        prompt = chance.choices((0, 1), k=chance.randrange(1, 9))
        names, index, model = names_of(prompt), self.index, self.model
        match chance.randrange(10):
            case 0 | 1 | 2:
                index.apply(worker, CacheChange(stored=blocks(prompt)))
                model.held[worker] |= set(names)
                model.expected[worker] -= set(names)
            case 3 | 4:
                index.apply(worker, CacheChange(removed=names[-2:]))
                model.held[worker] -= set(names[-2:])
                model.expected[worker] -= set(names[-2:])
            case 5 | 6:
                expectation = index.expect([worker], ROOT, pack_tokens(prompt))
                self.open.append((expectation, worker, names))
                model.expected[worker] |= set(names)
            case 7 | 8 if self.open:
                expectation, worker, names = self.open.pop(chance.randrange(len(self.open)))
                came_true = chance.random() < 0.7
                expectation.settle(came_true=came_true)
                model.settle(worker, names, came_true=came_true)
            case 9:
                index.apply(worker, CacheChange(cleared=True, stored=blocks(prompt)))
                model.held[worker] = set(names)
                model.expected[worker] -= set(names)

    def some_slices(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 3, 50))):
            if next(self._slices, self) is self:
                self._slices = self.index.sweep()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_while_it_is_swept_the_index_says_what_a_naive_model_says(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_tree, "SLICE_STEPS", 1)
    both, num_exact = Both(seed), 0
    for _ in range(250):
        both.one_change()
        both.some_slices()
        check_invariants(both.index.trees[0])
        if both.index.needs_sweep:
            assert is_between(both.index, both.model)
            continue
        assert beliefs(both.index) == both.model.beliefs()
        assert [both.index.num_blocks_of(worker) for worker in WORKERS] == both.model.counts()
        num_exact += 1
    assert num_exact > 50


def is_between(index: PrefixIndex, model: NaiveIndex) -> bool:
    """While a sweep moves what is expected, some of it may be unknown for the moment."""
    least = NaiveIndex()
    least.held = model.held
    return all(
        low.get(key.worker_id, 0) <= told.get(key.worker_id, 0) <= high.get(key.worker_id, 0)
        for low, told, high in zip(least.beliefs(), beliefs(index), model.beliefs(), strict=True)
        for key in WORKERS
    )


def test_what_is_expected_of_a_cleared_cache_is_expected_anew_in_slices() -> None:
    """A thousand requests under way, when their worker tells its cache anew."""
    worker, length = WORKERS[0], 16
    index = new_index(worker)
    prompts = [[number, *range(length - 1)] for number in range(1000)]
    open_ = [index.expect([worker], ROOT, pack_tokens(prompt)) for prompt in prompts]
    index.apply(worker, CacheChange(cleared=True))
    assert index.num_blocks_of(worker) == 0, "all were expected anew in one go"
    slices = index.sweep()
    next(slices)
    assert 0 < index.num_blocks_of(worker) <= radix_tree.SLICE_STEPS
    open_[0].settle(came_true=True)  # while they move
    open_[1].settle(came_true=False)
    index.apply(worker, CacheChange(removed=names_of(prompts[2])[-4:]))
    list(slices)
    matched = [index.match(ROOT, pack_tokens(prompt), 1).of(worker) for prompt in prompts]
    assert matched == [length, 0, length - 4, *[length] * 997]
    for each in open_:
        each.settle(came_true=False)
    assert index.num_blocks_of(worker) == length
    assert not index.needs_sweep


def beliefs(index: PrefixIndex) -> list[dict[str, int]]:
    return [index.match(ROOT, pack_tokens(prompt), 1).num_blocks for prompt in PROMPTS]


def test_a_large_cache_that_is_cleared_is_unknown_at_once_and_goes_in_slices() -> None:
    """In blocks and nodes, not in seconds; a slice that has begun a node finishes it."""
    worker, length = WORKERS[0], 64
    index = new_index(worker)
    prompts = [[number, *range(length - 1)] for number in range(700)]
    for prompt in prompts:
        index.apply(worker, CacheChange(stored=blocks(prompt)))
    index.apply(worker, CacheChange(cleared=True, stored=blocks(prompts[0][:3])))
    assert index.num_blocks == 700 * length, "all went in one go"
    assert index.num_blocks_of(worker) == 3
    assert not any(index.match(ROOT, pack_tokens(prompt), 1).num_blocks for prompt in prompts[1:])
    left = index.num_blocks
    for _ in index.sweep():
        assert left - index.num_blocks < radix_tree.SLICE_STEPS + length
        left = index.num_blocks
    assert not index.needs_sweep
    assert index.num_blocks == 3 == index.match(ROOT, pack_tokens(prompts[0]), 1).of(worker)


def test_a_bit_that_is_given_again_means_its_new_worker_alone() -> None:
    """Masks are read into names once: those read during the sweep meant nobody by that bit."""
    first, second, third = WORKERS
    index = new_index(first, second)
    for worker in (first, second):
        index.apply(worker, CacheChange(stored=blocks([0, 0])))
    index.remove_worker(first)
    assert index.match(ROOT, pack_tokens([0, 0]), 1).num_blocks == {second.worker_id: 2}
    list(index.sweep())
    index.add_worker(third, 1)
    index.apply(third, CacheChange(stored=blocks([0, 0])))
    found = index.match(ROOT, pack_tokens([0, 0]), 1).num_blocks
    assert found == {second.worker_id: 2, third.worker_id: 2}


def test_a_worker_that_is_cleared_again_and_again_takes_no_more_bits() -> None:
    index = new_index(*WORKERS)
    for _ in range(100):
        index.apply(WORKERS[1], CacheChange(cleared=True, stored=blocks([0, 1, 0])))
        list(index.sweep())
    assert index._slots.bit_of(WORKERS[1]) <= 1 << len(WORKERS)
    assert index.num_blocks == 3
