"""The index by worker names, fed by cache changes."""

import random

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index.invariants import check_invariants
from router.index.prefix_index import PrefixIndex

ROOT = cache_root("pair")
D1, D2, OLD = WorkerKey("d1", "i1"), WorkerKey("d2", "i1"), WorkerKey("d1", "i0")


def blocks(token_ids: list[int], size: int = 4) -> list[CachedBlock]:
    names = chain_names(pack_tokens(token_ids), parent=ROOT, block_size_tokens=size)
    parents = [None, *names]
    return [
        CachedBlock(name, parents[i], token_ids[i * size : (i + 1) * size])
        for i, name in enumerate(names)
    ]


def new_index(*workers: WorkerKey, max_blocks: int = 1000) -> PrefixIndex:
    index = PrefixIndex(max_blocks)
    for worker in workers:
        index.add_worker(worker, 4)
    return index


def matched(index: PrefixIndex, token_ids: list[int], worker: WorkerKey) -> int:
    return index.match(ROOT, pack_tokens(token_ids), 4).of(worker)


def test_stored_and_removed_blocks_are_what_is_matched_and_counted() -> None:
    index, prompt = new_index(D1, D2), list(range(16))
    assert index.apply(D1, CacheChange(stored=blocks(prompt))) == 0
    index.apply(D2, CacheChange(stored=blocks(prompt), removed=[blocks(prompt)[3].name]))
    assert [matched(index, prompt, worker) for worker in (D1, D2)] == [4, 3]
    assert [index.num_blocks_of(worker) for worker in (D1, D2)] == [4, 3]
    assert index.num_blocks == 4
    index.apply(D1, CacheChange(cleared=True))
    assert matched(index, prompt, D1) == 0


def test_a_snapshot_clears_and_tells_again_while_expectations_stay() -> None:
    index = new_index(D1)
    index.apply(D1, CacheChange(stored=blocks([1] * 8)))
    expectation = index.expect([D1], ROOT, pack_tokens([2] * 8))
    index.apply(D1, CacheChange(stored=blocks([3] * 4), cleared=True))
    list(index.sweep())
    assert [matched(index, [n] * 8, D1) for n in (1, 2, 3)] == [0, 2, 1]
    expectation.settle(came_true=False)
    expectation.settle(came_true=True)
    assert matched(index, [2] * 8, D1) == 0


def test_words_of_a_former_incarnation_change_nothing() -> None:
    index = new_index(D1)
    index.apply(OLD, CacheChange(stored=blocks([1] * 8)))
    index.expect([OLD], ROOT, pack_tokens([1] * 8)).settle(came_true=True)
    assert index.num_blocks == 0


def test_a_removed_worker_leaves_nothing_and_its_bit_is_used_again() -> None:
    index = new_index(D1, D2)
    index.apply(D1, CacheChange(stored=blocks([1] * 8)))
    late = index.expect([D1], ROOT, pack_tokens([2] * 8))
    index.remove_worker(D1)
    index.remove_worker(D1)
    assert (index.num_blocks_of(D1), matched(index, [1] * 8, D1)) == (0, 0)
    list(index.sweep())
    assert (index.num_blocks, index.num_blocks_of(D1)) == (0, 0)
    index.add_worker(WorkerKey("d3", "i1"), 4)
    late.settle(came_true=True)
    assert matched(index, [2] * 8, WorkerKey("d3", "i1")) == 0
    assert index._slots.bit_of(WorkerKey("d3", "i1")) == 1


def test_blocks_of_a_wrong_size_or_an_unknown_parent_are_left_out_and_counted() -> None:
    index = new_index(D1)
    assert index.apply(D1, CacheChange(stored=[CachedBlock(b"x", None, [1, 2, 3])])) == 1
    assert index.apply(D1, CacheChange(stored=blocks([1] * 8)[1:])) == 1
    assert index.num_blocks == 0


def test_workers_with_unequal_block_sizes_live_side_by_side() -> None:
    index = new_index(D1)
    index.add_worker(D2, 8)
    prompt = list(range(16))
    index.expect([D1, D2], ROOT, pack_tokens(prompt))
    assert index.match(ROOT, pack_tokens(prompt), 4).num_blocks == {"d1": 4}
    assert index.match(ROOT, pack_tokens(prompt), 8).num_blocks == {"d2": 2}


def test_random_events_of_many_workers_keep_the_counts_right() -> None:
    rng = random.Random(7)
    workers = [WorkerKey(f"d{number}", "i") for number in range(70)]
    index = new_index(*workers)
    for _ in range(600):
        prompt = [rng.randrange(2) for _ in range(rng.randrange(4, 24))]
        worker = rng.choice(workers)
        if rng.random() < 0.6:
            index.apply(worker, CacheChange(stored=blocks(prompt)))
        else:
            index.apply(worker, CacheChange(removed=[b.name for b in blocks(prompt)]))
    [tree] = index.trees
    check_invariants(tree)
    for worker in workers:
        bit = index._slots.bit_of(worker)
        held = sum(n.num_blocks for n in tree.structure.nodes if n.holders & bit)
        assert index.num_blocks_of(worker) == held
