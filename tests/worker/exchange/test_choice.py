"""Which prefixes a leaving worker hands on, and to whom."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from cluster.cache_change import CachedBlock
from cluster.identity import WorkerKey
from engine.contract.warm_blocks import WarmBlock
from worker.exchange.choice import choose, share
from worker.exchange.warm_tree import WarmTree

A, B = WorkerKey("a", "1"), WorkerKey("b", "1")
SIZE = 2


def block(path: str, last_used: int) -> WarmBlock:
    """One letter a block: "ab" is the block b behind the block a."""
    parent = path[:-1].encode() or None
    tokens = [ord(path[-1])] * SIZE
    root = b"root" if parent is None else None
    return WarmBlock(CachedBlock(path.encode(), parent, tokens), root, last_used)


def tree_of(**last_used: int) -> WarmTree:
    return WarmTree([block(path, used) for path, used in last_used.items()])


def paths(ends: list[bytes]) -> list[str]:
    return [end.decode() for end in ends]


def test_prefixes_come_hottest_first_with_all_their_tokens() -> None:
    tree = tree_of(a=4, ab=3, x=9, xy=8)
    chosen = choose(tree, 10)
    assert paths(chosen) == ["xy", "ab"]
    prefix = tree.prefix(chosen[0])
    assert (prefix.root, prefix.names) == (b"root", (b"x", b"xy"))
    assert prefix.token_ids == (ord("x"), ord("x"), ord("y"), ord("y"))


def test_a_prefix_is_of_the_adapter_of_its_last_block() -> None:
    """A worker of the version before handed on the first without telling it."""
    last = block("ab", 1)
    tree = WarmTree(
        [block("a", 1), structs.replace(last, block=structs.replace(last.block, adapter="d"))]
    )
    assert tree.prefix(b"ab").adapter == "d"


def test_a_limit_keeps_the_beginnings_of_what_was_used_last() -> None:
    tree = tree_of(a=9, ab=8, abc=7, x=3)
    assert paths(choose(tree, 2)) == ["ab"]
    assert choose(tree, 0) == []


def test_a_shared_beginning_counts_once() -> None:
    assert paths(choose(tree_of(a=9, ab=8, ac=7), 3)) == ["ab", "ac"]


def test_a_block_whose_beginning_is_gone_is_left() -> None:
    assert choose(tree_of(ab=9, abc=8), 5) == []


def test_a_cold_block_that_a_hot_one_stands_on_goes_along() -> None:
    assert paths(choose(tree_of(a=1, ab=9, x=5), 2)) == ["ab"]


def test_a_name_that_is_told_twice_is_as_hot_as_the_later_one_says() -> None:
    tree = WarmTree([block("a", 9), block("x", 5), block("a", 1)])
    assert paths(choose(tree, 1)) == ["a"]


def test_what_begins_alike_goes_to_one_worker_and_the_rest_to_who_has_most_room() -> None:
    tree = tree_of(a=9, ab=8, ac=7, x=6)
    shares = share(tree, choose(tree, 9), {A: 50, B: 49})
    assert paths(shares[A]) == ["ab", "ac"]
    assert paths(shares[B]) == ["x"]


def test_of_what_has_no_room_anywhere_the_beginning_is_given() -> None:
    tree = tree_of(a=9, ab=8, abc=7, abd=6, x=5)
    shares = share(tree, choose(tree, 9), {A: 2, B: 0})
    assert (paths(shares[A]), shares[B]) == (["ab"], [])


def test_what_no_longer_fits_beside_its_beginning_goes_whole_to_who_has_room() -> None:
    tree = tree_of(a=9, ab=8, x=7, xy=6, ac=5)
    shares = share(tree, choose(tree, 9), {A: 2, B: 4})
    assert paths(shares[B]) == ["ab", "ac"]
    assert paths(shares[A]) == ["xy"]
    shares = share(tree, [b"ab", b"xy", b"ac"], {A: 2, B: 2})
    assert (paths(shares[A]), paths(shares[B])) == (["ab"], ["xy"])
    shares = share(tree, [b"ab", b"ac"], {A: 2, B: 2})
    assert (paths(shares[A]), paths(shares[B])) == (["ab"], ["ac"])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_cached_no_more_is_chosen_or_given_than_there_is_room_for(seed: int) -> None:
    chance = random.Random(seed)
    names = {"".join(chance.choices("ab", k=chance.randint(1, 4))) for _ in range(12)}
    names |= {name[:end] for name in names for end in range(1, len(name))}
    tree = tree_of(**{name: chance.randrange(9) for name in sorted(names)})
    limit = chance.randrange(12)
    chosen = choose(tree, limit)
    different = {name for end in chosen for name in tree.way_to(end)}
    assert len(different) == min(limit, len(names))
    room = {A: chance.randrange(8), B: chance.randrange(8)}
    shares = share(tree, chosen, room)
    given = {key: {n for end in ends for n in tree.way_to(end)} for key, ends in shares.items()}
    for key, blocks in given.items():
        assert len(blocks) <= room[key]
    assert different <= given[A] | given[B] or any(len(given[key]) == room[key] for key in room)


class CountedName(bytes):
    """Counts how often a block is looked up."""

    num_looks = 0

    def __hash__(self) -> int:
        CountedName.num_looks += 1
        return super().__hash__()


@pytest.mark.parametrize("room", [1_000, 100])
def test_many_prefixes_behind_one_long_beginning_are_no_more_work_than_their_blocks(
    room: int,
) -> None:
    names = [CountedName(index.to_bytes(4, "big")) for index in range(600)]
    blocks = [
        WarmBlock(CachedBlock(name, names[min(index, 300) - 1] if index else None, [1]), None, 1)
        for index, name in enumerate(names)
    ]
    CountedName.num_looks = 0
    tree = WarmTree(blocks)
    ends = choose(tree, 600)
    assert len(ends) == 300
    shares = share(tree, ends, {WorkerKey(str(each), "1"): room for each in range(8)})
    assert sum(map(len, shares.values())) >= 1
    assert CountedName.num_looks < 60 * len(blocks)
