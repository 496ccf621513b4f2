"""What is kept in shares: nobody pushes out all of the others'."""

from __future__ import annotations

import random
from collections import Counter

from cluster.kept_in_shares import KeptInShares


def test_one_owner_pushes_out_its_own_once_it_has_more_than_others() -> None:
    kept: KeptInShares[bytes, str] = KeptInShares(8)
    for i in range(3):
        kept.put(b"a%d" % i, "a", owner=b"a")
    for i in range(1000):
        kept.put(b"b%d" % i, "b", owner=b"b")
    assert [kept.get(b"a%d" % i) for i in range(3)] == ["a"] * 3
    assert Counter(kept) == {"a": 3, "b": 5}
    assert kept.get(b"b999") == "b" and kept.get(b"b994") is None


def test_many_owners_share_alike() -> None:
    kept: KeptInShares[bytes, int] = KeptInShares(12)
    for i in range(500):
        owner = i % 4
        kept.put(b"%d" % i, owner, owner=b"%d" % owner)
    assert Counter(kept) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_of_an_owner_the_least_lately_asked_for_goes() -> None:
    kept: KeptInShares[bytes, int] = KeptInShares(3)
    for i in range(3):
        kept.put(b"%d" % i, i, owner=b"a")
    kept.touch(b"0")
    kept.put(b"3", 3, owner=b"a")
    assert list(kept) == [2, 0, 3]


def test_what_is_put_again_counts_once() -> None:
    kept: KeptInShares[bytes, int] = KeptInShares(3)
    for i in range(5):
        kept.put(b"x", i, owner=b"%d" % i)
    assert list(kept) == [4]


def test_where_bytes_are_too_many_those_of_who_has_most_of_them_go() -> None:
    kept: KeptInShares[bytes, str] = KeptInShares(100, 1000)
    for i in range(4):
        kept.put(b"small %d" % i, "small", owner=b"a", num_bytes=100)
    for i in range(9):
        kept.put(b"large %d" % i, "large", owner=b"b", num_bytes=250)
    assert Counter(kept) == {"small": 4, "large": 2} and kept.num_bytes == 900
    kept.put(b"huge", "huge", owner=b"c", num_bytes=2000)
    assert list(kept) == ["huge"] and kept.num_bytes == 2000
    kept.put(b"small", "small", owner=b"a", num_bytes=100)
    assert list(kept) == ["small"] and kept.num_bytes == 100


def test_what_has_grown_pushes_out_others_of_who_has_most() -> None:
    kept: KeptInShares[bytes, str] = KeptInShares(100, 1000)
    for owner, name in ((b"a", b"small"), (b"b", b"one"), (b"b", b"two")):
        kept.put(name, name.decode(), owner=owner, num_bytes=300)
    kept.weigh(b"two", 300)
    assert len(kept) == 3
    kept.weigh(b"two", 600)
    assert list(kept) == ["small", "two"] and kept.num_bytes == 900
    kept.weigh(b"small", 5000)
    assert len(kept) == 1


def test_random_owners_never_have_more_than_are_kept_and_the_newest_is_there() -> None:
    chance, kept = random.Random(1), KeptInShares[bytes, int](16, 1500)
    for i in range(3000):
        owner = int(chance.paretovariate(0.4)) % 40
        digest = b"%d" % chance.randrange(200)
        kept.put(digest, i, owner=b"%d" % owner, num_bytes=chance.randrange(200))
        assert len(kept) <= 16 and kept.num_bytes <= 1500 and kept.get(digest) == i
        kept.check_invariants()


def test_of_those_that_have_as_many_who_has_asked_for_nothing_for_longest_gives_way() -> None:
    kept: KeptInShares[bytes, int] = KeptInShares(4)
    for i in range(4):
        kept.put(b"%d" % i, i, owner=b"%d" % (i // 2))
    kept.touch(b"1")  # of the first owner, whose others are the oldest
    kept.put(b"4", 4, owner=b"2")
    assert list(kept) == [0, 3, 1, 4]
    kept.check_invariants()


def test_without_a_limit_of_bytes_nobody_counts_them() -> None:
    kept: KeptInShares[str, int] = KeptInShares(2)
    for i in range(2):
        kept.put(str(i), i, owner=b"a", num_bytes=1 << 40)
    assert list(kept) == [0, 1]
