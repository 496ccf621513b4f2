"""Blocks are conserved, shared, copied before a write, and remembered until they are reused."""

from __future__ import annotations

import random

import pytest

from cluster.block_homes import BlockHomes
from cluster.cache_change import CachedBlock
from engine.memory.block_pool import BlockPool, BlockState, Hold
from engine.memory.lease import BlockLease, lease_blocks
from engine.memory.prefix_cache import PrefixCache


def make_pool(num_blocks: int = 8, num_homes: int = 1) -> tuple[BlockPool, PrefixCache]:
    """`num_blocks` at each home."""
    homes = BlockHomes(num_homes, num_blocks)
    cache = PrefixCache(homes)
    return BlockPool(homes, cache), cache


def take(pool: BlockPool, num_blocks: int, hold: Hold = Hold.ACTIVE) -> BlockLease:
    lease = lease_blocks(pool, "test", hold, home=0, num_new=num_blocks)
    assert lease is not None
    return lease


def test_an_allocation_that_does_not_fit_is_none_and_changes_nothing() -> None:
    pool, _ = make_pool(2)
    held = take(pool, 1)
    assert lease_blocks(pool, "test", Hold.ACTIVE, home=0, num_new=2) is None
    assert pool.num_available == 1
    assert pool.leases == {held}
    assert pool.check_invariants() == []


def test_a_lease_is_released_once_however_often_it_is_asked() -> None:
    pool, _ = make_pool()
    first, second = take(pool, 3), take(pool, 3)
    first.release()
    first.release()
    assert pool.num_available == 5
    second.release()
    assert pool.count(BlockState.FREE) == 8
    assert pool.check_invariants() == []


def test_a_lease_releases_itself_when_its_block_of_code_fails() -> None:
    pool, _ = make_pool()
    with pytest.raises(RuntimeError), take(pool, 3):
        raise RuntimeError("the work failed")
    assert pool.num_available == 8


def test_a_freed_block_keeps_its_prefix_until_it_is_reused() -> None:
    pool, cache = make_pool(2)
    lease = take(pool, 1)
    block_id = lease.block_ids[0]
    cache.store(block_id, CachedBlock(b"name", None, [1, 2]))
    lease.release()
    assert pool.state(block_id) is BlockState.CACHED
    assert cache.match([b"name"], 1, home=0) == [block_id]
    other = take(pool, 1)  # the free block goes first
    assert block_id not in other.block_ids
    take(pool, 1)
    assert cache.match([b"name"], 1, home=0) == []


def test_the_least_recently_released_prefix_is_reused_first_and_its_tail_before_its_head() -> None:
    pool, cache = make_pool(4)
    old, new = take(pool, 2), take(pool, 2)
    expected = [*reversed(old.block_ids), *reversed(new.block_ids)]
    for lease, label in ((old, b"old"), (new, b"new")):
        for index, block_id in enumerate(lease.block_ids):
            cache.store(block_id, CachedBlock(label + bytes([index]), None, [0]))
    old.release()
    new.release()
    assert [take(pool, 1).block_ids[0] for _ in range(4)] == expected


def test_a_generation_changes_before_a_slot_is_given_to_another_sequence_and_only_then() -> None:
    pool, _ = make_pool(1)
    lease = take(pool, 1)
    first = int(pool.generations[0])
    shared = lease.fork("other")
    lease.release()
    assert int(pool.generations[0]) == first
    shared.release()
    assert int(pool.generations[0]) == first
    take(pool, 1)
    assert int(pool.generations[0]) == first + 1


def test_a_cached_block_that_is_shared_again_keeps_its_generation() -> None:
    pool, cache = make_pool(1)
    lease = take(pool, 1)
    cache.store(0, CachedBlock(b"name", None, [1]))
    lease.release()
    before = int(pool.generations[0])
    assert lease_blocks(pool, "again", Hold.ACTIVE, home=0, shared=[0]) is not None
    assert int(pool.generations[0]) == before
    assert cache.match([b"name"], 1, home=0) == [0]


def test_a_shared_block_is_copied_before_a_write_by_all_but_its_last_holder() -> None:
    pool, _ = make_pool()
    first = take(pool, 1)
    others = [first.fork("b"), first.fork("c")]
    source = first.block_ids[0]
    assert first.own(0) == (source, first.block_ids[0])
    assert others[0].own(0) == (source, others[0].block_ids[0])
    assert others[1].own(0) is None
    assert {first.block_ids[0], others[0].block_ids[0]}.isdisjoint(others[1].block_ids)
    assert pool.check_invariants() == []


def test_writing_into_ones_own_named_block_takes_its_name_away() -> None:
    pool, cache = make_pool()
    lease = take(pool, 1)
    cache.store(lease.block_ids[0], CachedBlock(b"name", None, [1]))
    assert lease.own(0) is None
    assert cache.match([b"name"], 1, home=0) == []


def test_writing_into_ones_own_named_block_makes_it_another_generation() -> None:
    """A reader to whom it was exported by its name may be late."""
    pool, cache = make_pool()
    lease = take(pool, 1)
    block_id = lease.block_ids[0]
    exported = int(pool.generations[block_id])
    assert lease.own(0) is None
    assert int(pool.generations[block_id]) == exported  # nobody can have been told of it
    cache.store(block_id, CachedBlock(b"name", None, [1]))
    assert lease.own(0) is None
    assert int(pool.generations[block_id]) == exported + 1


def test_a_block_counts_for_the_strongest_of_its_holds() -> None:
    pool, _ = make_pool()
    active = take(pool, 2)
    exported = active.fork("reader")
    exported.turn(Hold.EXPORTED)
    assert pool.count(BlockState.EXPORTED) == 2
    exported.release()
    assert pool.count(BlockState.ACTIVE) == 2
    active.turn(Hold.RECEIVING)
    assert pool.count(BlockState.RECEIVING) == 2
    assert pool.check_invariants() == []


def test_a_block_that_loses_a_holder_behind_the_pools_back_is_found() -> None:
    pool, _ = make_pool()
    lease = take(pool, 2)
    lease.block_ids.pop()
    assert pool.check_invariants()


@pytest.mark.parametrize("seed", range(20))
def test_random_operations_conserve_blocks(seed: int) -> None:
    chance = random.Random(seed)
    pool, cache = make_pool(8)
    leases: list[BlockLease] = []
    for _ in range(200):
        _random_operation(chance, pool, cache, leases)
        assert pool.check_invariants() == []
        held = {block_id for lease in leases for block_id in lease.block_ids}
        assert pool.num_available == 8 - len(held)
    for lease in leases:
        lease.release()
    assert pool.num_available == 8


def _random_operation(
    chance: random.Random,
    pool: BlockPool,
    cache: PrefixCache,
    leases: list[BlockLease],
    home: int = 0,
) -> None:
    action = chance.choice(["take", "take", "fork", "own", "name", "turn", "release", "release"])
    if action == "take":
        cached = cache.match([bytes([chance.randrange(4)])], 1, home=home)
        num_new = chance.randrange(1, 4)
        lease = lease_blocks(pool, "test", Hold.ACTIVE, home=home, shared=cached, num_new=num_new)
        leases += [lease] if lease else []
    elif leases:
        lease = chance.choice(leases)
        index = chance.randrange(len(lease))
        if action == "fork":
            leases.append(lease.fork("fork"))
        elif action == "own" and (pool.available_at(lease.home) or not lease.is_shared(index)):
            lease.own(index)
        elif action == "name":
            name = bytes([chance.randrange(4)])
            cache.store(lease.block_ids[index], CachedBlock(name, None, [0]))
        elif action == "turn":
            lease.turn(chance.choice(list(Hold)))
        elif action == "release":
            leases.remove(lease)
            lease.release()


def test_a_lease_grows_copies_and_forks_at_its_own_home() -> None:
    pool, _ = make_pool(4, num_homes=3)
    lease = lease_blocks(pool, "test", Hold.ACTIVE, home=1, num_new=2)
    assert lease is not None and lease.extend()
    fork = lease.fork("fork")
    assert fork.own(2) is not None
    assert {pool.homes.home_of(block_id) for block_id in [*lease.block_ids, *fork.block_ids]} == {1}
    assert [pool.available_at(home) for home in range(3)] == [4, 0, 4]
    assert pool.check_invariants() == []


def test_a_home_that_is_full_gives_nothing_while_others_have_room() -> None:
    pool, cache = make_pool(2, num_homes=2)
    full = lease_blocks(pool, "test", Hold.ACTIVE, home=0, num_new=2)
    assert full is not None
    assert not full.extend()
    assert lease_blocks(pool, "test", Hold.ACTIVE, home=0, num_new=1) is None
    assert pool.num_available == pool.available_at(1) == 2
    cache.store(2, CachedBlock(b"elsewhere", None, [1]))
    full.release()
    assert take(pool, 2).home == 0
    assert cache.match([b"elsewhere"], 1, home=1) == [2]  # nobody there lost a name to it


def test_a_block_of_another_home_in_a_lease_is_found() -> None:
    pool, _ = make_pool(2, num_homes=2)
    lease = lease_blocks(pool, "test", Hold.ACTIVE, home=0, num_new=1)
    assert lease is not None
    lease.block_ids[0] = pool.homes.ids_of(1)[0]
    assert any("held by a lease at home 0" in fault for fault in pool.check_invariants())


@pytest.mark.parametrize("seed", range(10))
def test_random_operations_conserve_the_blocks_of_each_home(seed: int) -> None:
    chance = random.Random(seed)
    pool, cache = make_pool(4, num_homes=3)
    leases: list[BlockLease] = []
    for _ in range(200):
        _random_operation(chance, pool, cache, leases, home=chance.randrange(3))
        assert pool.check_invariants() == []
        for home in range(3):
            held = {b for lease in leases for b in lease.block_ids if lease.home == home}
            assert held <= set(pool.homes.ids_of(home))
            assert pool.available_at(home) == 4 - len(held)
    for lease in leases:
        lease.release()
    assert [pool.available_at(home) for home in range(3)] == [4, 4, 4]
