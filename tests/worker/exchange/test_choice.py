"""Which prefixes a leaving worker hands on, and to whom."""

from __future__ import annotations

import random

import pytest

from cluster.cache_change import CachedBlock
from cluster.identity import WorkerKey
from engine.contract.messages import WarmBlock
from worker.exchange.choice import CachedPrefix, choose, share

A, B = WorkerKey("a", "1"), WorkerKey("b", "1")
SIZE = 2


def block(path: str, last_used: int) -> WarmBlock:
    """One letter a block: "ab" is the block b behind the block a."""
    parent = path[:-1].encode() or None
    tokens = [ord(path[-1])] * SIZE
    root = b"root" if parent is None else None
    return WarmBlock(CachedBlock(path.encode(), parent, tokens), root, last_used)


def paths(prefixes: list[CachedPrefix]) -> list[str]:
    return [prefix.names[-1].decode() for prefix in prefixes]


def test_prefixes_come_hottest_first_with_all_their_tokens() -> None:
    blocks = [block("a", 4), block("ab", 3), block("x", 9), block("xy", 8)]
    chosen = choose(blocks, 10)
    assert paths(chosen) == ["xy", "ab"]
    assert chosen[0].root == b"root"
    assert chosen[0].token_ids == (ord("x"), ord("x"), ord("y"), ord("y"))


def test_a_limit_keeps_the_beginnings_of_what_was_used_last() -> None:
    blocks = [block("a", 9), block("ab", 8), block("abc", 7), block("x", 3)]
    assert paths(choose(blocks, 2)) == ["ab"]
    assert choose(blocks, 0) == []


def test_a_shared_beginning_counts_once() -> None:
    blocks = [block("a", 9), block("ab", 8), block("ac", 7)]
    assert paths(choose(blocks, 3)) == ["ab", "ac"]


def test_a_block_whose_beginning_is_gone_is_left() -> None:
    assert choose([block("ab", 9), block("abc", 8)], 5) == []


def test_a_cold_block_that_a_hot_one_stands_on_goes_along() -> None:
    blocks = [block("a", 1), block("ab", 9), block("x", 5)]
    assert paths(choose(blocks, 2)) == ["ab"]


def test_what_begins_alike_goes_to_one_worker_and_the_rest_to_who_has_most_room() -> None:
    prefixes = choose([block("a", 9), block("ab", 8), block("ac", 7), block("x", 6)], 9)
    shares = share(prefixes, {A: 100, B: 99})
    assert paths(shares[A]) == ["ab", "ac"]
    assert paths(shares[B]) == ["x"]


def test_what_has_no_room_anywhere_is_left() -> None:
    prefixes = choose([block("a", 9), block("ab", 8), block("x", 7)], 9)
    shares = share(prefixes, {A: SIZE})
    assert paths(shares[A]) == ["x"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_cached_no_more_is_chosen_or_given_than_there_is_room_for(seed: int) -> None:
    chance = random.Random(seed)
    names = {"".join(chance.choices("ab", k=chance.randint(1, 4))) for _ in range(12)}
    names |= {name[:end] for name in names for end in range(1, len(name))}
    blocks = [block(name, chance.randrange(9)) for name in sorted(names)]
    limit = chance.randrange(12)
    chosen = choose(blocks, limit)
    different = {name for prefix in chosen for name in prefix.names}
    assert len(different) <= limit
    assert limit < len(names) or len(different) == len(names)
    room = {A: SIZE * chance.randrange(8), B: SIZE * chance.randrange(8)}
    for key, given in share(chosen, room).items():
        assert SIZE * len({name for prefix in given for name in prefix.names}) <= room[key]
