"""A worker's digest is of what it holds, however that came to be known."""

from __future__ import annotations

from random import Random

from cluster.block_hash import chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index.prefix_index import PrefixIndex

ROOT, SIZE = b"root", 2
WORKERS = [WorkerKey("d1", "i1"), WorkerKey("d2", "i1")]


def new_index(max_blocks: int = 1000) -> PrefixIndex:
    index = PrefixIndex(max_blocks, has_digests=True)
    for worker in WORKERS:
        index.add_worker(worker, SIZE)
    return index


def blocks_of(prompt: list[int]) -> list[CachedBlock]:
    names = chain_names(pack_tokens(prompt), parent=ROOT, block_size_tokens=SIZE)
    parents = [None, *names]
    tokens = [prompt[at : at + SIZE] for at in range(0, len(names) * SIZE, SIZE)]
    return [CachedBlock(*each) for each in zip(names, parents, tokens, strict=False)]


def held_by(worker: WorkerKey, chance: Random) -> list[CacheChange]:
    """Some prompts with common beginnings, and some blocks at their ends removed again."""
    changes = []
    for _ in range(30):
        blocks = blocks_of([chance.randrange(2) for _ in range(8)])
        gone = [block.name for block in blocks[chance.randrange(5) :]]
        changes += [CacheChange(stored=blocks), CacheChange(removed=gone)]
    return changes


def test_indexes_that_hold_the_same_have_one_digest_whatever_came_first() -> None:
    """One hears all of one worker first, the other in turns; expectations come and go between."""
    of_each = {worker: held_by(worker, Random(n)) for n, worker in enumerate(WORKERS)}
    first, second = new_index(), new_index()
    for worker, changes in of_each.items():
        for change in changes:
            first.apply(worker, change)
    expected = second.expect(WORKERS, ROOT, pack_tokens([0, 1] * 4))
    for changes in zip(*of_each.values(), strict=True):
        for worker, change in zip(reversed(of_each), reversed(changes), strict=True):
            second.apply(worker, change)
    expected.settle(came_true=False)
    for worker in WORKERS:
        assert first.digest_of(worker) == second.digest_of(worker) != 0


def test_a_digest_says_what_is_there_now() -> None:
    index, [worker, other] = new_index(), WORKERS
    blocks = blocks_of([1, 2, 3, 4])
    index.apply(worker, CacheChange(stored=blocks))
    whole = index.digest_of(worker)
    index.apply(worker, CacheChange(removed=[blocks[1].name]))
    assert index.digest_of(worker) not in (0, whole)
    index.apply(worker, CacheChange(stored=blocks[1:]))
    assert index.digest_of(worker) == whole
    index.apply(worker, CacheChange(cleared=True))
    assert index.digest_of(worker) == index.digest_of(other) == 0
    list(index.sweep())
    assert index.digest_of(worker) == 0
    index.remove_worker(worker)
    assert index.digest_of(worker) == 0


def test_what_goes_because_an_index_is_full_leaves_its_digest_as_well() -> None:
    full, roomy, [worker, _] = new_index(max_blocks=2), new_index(), WORKERS
    for index in (full, roomy):
        index.apply(worker, CacheChange(stored=blocks_of([9, 9, 9, 9])))
    full.apply(worker, CacheChange(stored=blocks_of([1, 1])))
    roomy.apply(worker, CacheChange(stored=blocks_of([1, 1])))
    assert full.digest_of(worker) != roomy.digest_of(worker)
    assert 0 < full.num_blocks_of(worker) <= 2


def test_without_digests_none_is_kept() -> None:
    index = PrefixIndex(10)
    index.add_worker(WORKERS[0], SIZE)
    index.apply(WORKERS[0], CacheChange(stored=blocks_of([1, 2])))
    assert index.digest_of(WORKERS[0]) == 0
