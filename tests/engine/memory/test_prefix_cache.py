"""Names of blocks: longest prefix, net changes, snapshots."""

from __future__ import annotations

from cluster.block_homes import BlockHomes
from cluster.cache_change import CacheChange, CachedBlock
from engine.memory.prefix_cache import PrefixCache

ONE_HOME = BlockHomes(1, 8)


def entry(name: bytes, parent: bytes | None = None) -> CachedBlock:
    return CachedBlock(name, parent, [1, 2])


def test_a_match_ends_at_the_first_unknown_name_and_at_the_limit() -> None:
    cache = PrefixCache(ONE_HOME)
    for block_id, name in enumerate([b"a", b"b", b"d"]):
        cache.store(block_id, entry(name))
    assert cache.match([b"a", b"b", b"c", b"d"], 4, home=0) == [0, 1]
    assert cache.match([b"a", b"b"], 1, home=0) == [0]
    assert cache.match([b"x"], 1, home=0) == []


def test_a_name_stays_with_the_first_block_that_had_it() -> None:
    cache = PrefixCache(ONE_HOME)
    cache.store(3, entry(b"a"))
    cache.store(4, entry(b"a"))
    assert cache.match([b"a"], 1, home=0) == [3]
    cache.forget(4)
    assert cache.match([b"a"], 1, home=0) == [3]


def test_a_change_is_told_once_and_net_of_what_was_undone() -> None:
    cache = PrefixCache(ONE_HOME)
    cache.store(0, entry(b"a"))
    cache.store(1, entry(b"b"))
    cache.forget(1)
    assert cache.take_change() == CacheChange(stored=[entry(b"a")])
    assert cache.take_change() is None
    cache.forget(0)
    cache.store(2, entry(b"a"))
    assert cache.take_change() is None
    cache.forget(2)
    assert cache.take_change() == CacheChange(removed=[b"a"])


def test_a_snapshot_names_parents_before_their_children() -> None:
    cache = PrefixCache(ONE_HOME)
    cache.store(0, entry(b"c", b"b"))
    cache.store(1, entry(b"orphan", b"gone"))
    cache.store(2, entry(b"b", b"a"))
    cache.store(3, entry(b"a"))
    names = [block.name for block in cache.snapshot()]
    assert sorted(names) == [b"a", b"b", b"c", b"orphan"]
    assert names.index(b"a") < names.index(b"b") < names.index(b"c")


def test_a_cache_that_is_switched_off_remembers_nothing() -> None:
    cache = PrefixCache(ONE_HOME, enabled=False)
    cache.store(0, entry(b"a"))
    assert cache.match([b"a"], 1, home=0) == []
    assert cache.take_change() is None
    assert len(cache) == 0


def test_a_match_is_of_one_home_whatever_another_has() -> None:
    cache = PrefixCache(BlockHomes(2, 4))
    for block_id, name in [(0, b"a"), (1, b"b"), (4, b"a")]:
        cache.store(block_id, entry(name))
    assert cache.match([b"a", b"b"], 2, home=0) == [0, 1]
    assert cache.match([b"a", b"b"], 2, home=1) == [4]


def test_a_name_is_gained_at_its_first_home_and_lost_at_its_last() -> None:
    cache = PrefixCache(BlockHomes(2, 4))
    cache.store(0, entry(b"a"))
    cache.store(4, entry(b"a"))
    assert cache.take_change() == CacheChange(stored=[entry(b"a")])
    assert [block.name for block in cache.snapshot()] == [b"a"]
    cache.forget(0)
    assert cache.take_change() is None
    assert cache.match([b"a"], 1, home=1) == [4]
    cache.forget(4)
    assert cache.take_change() == CacheChange(removed=[b"a"])
