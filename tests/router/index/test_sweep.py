"""A worker that is gone is unknown at once; the room of its blocks comes in slices, with everything
else in between."""

import random
from collections.abc import Iterator

import pytest

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index import radix_tree
from router.index.invariants import check_invariants
from router.index.prefix_index import PrefixIndex

ROOT = cache_root("pair")
GONE, *STAY = [WorkerKey(f"d{number}", "i") for number in range(4)]
PROMPTS = [[number >> bit & 1 for bit in range(6)] for number in range(64)]


def blocks(prompt: list[int]) -> list[CachedBlock]:
    names = chain_names(pack_tokens(prompt), parent=ROOT, block_size_tokens=1)
    parents = [None, *names]
    return [CachedBlock(name, parents[i], prompt[i : i + 1]) for i, name in enumerate(names)]


def new_index() -> PrefixIndex:
    index = PrefixIndex(100_000)
    for worker in (GONE, *STAY):
        index.add_worker(worker, 1)
    return index


def beliefs(index: PrefixIndex) -> list[dict[str, int]]:
    return [index.match(ROOT, pack_tokens(prompt), 1).num_blocks for prompt in PROMPTS]


def counts(index: PrefixIndex) -> list[int]:
    return [index.num_blocks_of(worker) for worker in (GONE, *STAY)]


def churn(chance: random.Random, indices: list[PrefixIndex]) -> None:
    """The same change in all."""
    prompt = chance.choices((0, 1), k=chance.randrange(1, 9))
    worker, kind = chance.choice((GONE, *STAY)), chance.random()
    come_true = chance.random() < 0.5
    for index in indices:
        if kind < 0.4:
            index.apply(worker, CacheChange(stored=blocks(prompt)))
        elif kind < 0.7:
            index.apply(worker, CacheChange(removed=[blocks(prompt)[-1].name]))
        else:
            expectation = index.expect([worker], ROOT, pack_tokens(prompt))
            expectation.settle(came_true=come_true)


def drained(slices: Iterator[None]) -> int:
    return sum(1 for _ in slices)


@pytest.mark.parametrize("seed", range(30))
def test_while_it_is_swept_the_index_says_what_one_says_that_forgot_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_tree, "SLICE_STEPS", 1)
    chance = random.Random(seed)
    slow, fast = new_index(), new_index()
    for _ in range(150):
        churn(chance, [slow, fast])
    for index in (slow, fast):
        index.remove_worker(GONE)
    drained(fast.sweep())
    num_slices = 0
    for _ in slow.sweep():
        num_slices += 1
        assert (beliefs(slow), counts(slow)) == (beliefs(fast), counts(fast))
        for _ in range(chance.randrange(4)):
            churn(chance, [slow, fast])
            check_invariants(slow.trees[0])
    assert num_slices > 3
    assert (beliefs(slow), slow.num_blocks) == (beliefs(fast), fast.num_blocks)


@pytest.mark.parametrize("seed", range(10))
def test_after_a_sweep_no_node_has_the_bit_and_the_next_worker_gets_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_tree, "SLICE_STEPS", 1)
    chance, index = random.Random(seed), new_index()
    for _ in range(150):
        churn(chance, [index])
    bit = index._slots.bit_of(GONE)
    index.remove_worker(GONE)
    for _ in index.sweep():
        churn(chance, [index])
    assert not any(node.holders & bit for node in index.trees[0].structure.nodes)
    index.add_worker(WorkerKey("new", "i"), 1)
    assert index._slots.bit_of(WorkerKey("new", "i")) == bit
    assert index.num_blocks_of(WorkerKey("new", "i")) == 0


def test_a_worker_that_joins_during_the_sweep_gets_a_bit_of_its_own() -> None:
    index = new_index()
    index.apply(GONE, CacheChange(stored=blocks([0] * 8)))
    index.remove_worker(GONE)
    again = WorkerKey(GONE.worker_id, "i2")
    index.add_worker(again, 1)
    assert index.match(ROOT, pack_tokens([0] * 8), 1).num_blocks == {}
    index.apply(again, CacheChange(stored=blocks([0] * 3)))
    drained(index.sweep())
    assert index.match(ROOT, pack_tokens([0] * 8), 1).num_blocks == {GONE.worker_id: 3}
    assert index.num_blocks == 3 == index.num_blocks_of(again)


def test_a_sweep_that_is_broken_off_is_taken_up_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(radix_tree, "SLICE_STEPS", 1)
    index = new_index()
    for number, prompt in enumerate(PROMPTS):
        index.apply((GONE, *STAY)[number % 2], CacheChange(stored=blocks(prompt)))
    index.remove_worker(GONE)
    begun = index.sweep()
    next(begun)
    assert drained(index.sweep()) == 0, "one is under way"
    begun.close()
    index.remove_worker(STAY[0])
    assert drained(index.sweep()) > 10
    assert index.num_blocks == 0


def test_no_slice_of_a_large_sweep_does_more_than_its_share() -> None:
    """In blocks and nodes, not in seconds; a slice that has begun a node finishes it."""
    index, length = PrefixIndex(100_000), 64
    for worker in (GONE, *STAY):
        index.add_worker(worker, 1)
    for number in range(700):
        index.apply(GONE, CacheChange(stored=blocks([number, *range(length - 1)])))
    left = index.num_blocks
    assert left == 700 * length
    index.remove_worker(GONE)
    for _ in index.sweep():
        assert left - index.num_blocks < radix_tree.SLICE_STEPS + length
        left = index.num_blocks
    assert index.num_blocks == 0
