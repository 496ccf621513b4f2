"""The leaves about by last use; nothing in it is ever gone through."""

import random

from router.index.leaf_queue import MAX_LOOKS, LeafQueue
from router.index.node import Node


def leaf(used: int) -> Node:
    return Node(None, b"", [], used)


def test_leaves_go_in_the_order_of_their_use() -> None:
    queue, leaves = LeafQueue(), [leaf(used) for used in range(1, 5)]
    assert queue.stalest() is None
    for node in leaves:
        queue.add(node)
    leaves[0].used = 5
    queue.remove(leaves[2])
    assert gone_in_order(queue) == [2, 4, 5]


def test_what_was_used_since_is_no_fresher_than_what_came_later_still() -> None:
    queue, old = LeafQueue(), leaf(1)
    queue.add(old)
    queue.add(leaf(6))
    old.used = 5
    assert gone_in_order(queue) == [5, 6]


def test_what_becomes_a_leaf_goes_next_when_nothing_is_staler_and_else_last() -> None:
    queue = LeafQueue()
    for used in (3, 7):
        queue.add(leaf(used))
    queue.add(leaf(2))
    queue.add(leaf(5))
    assert gone_in_order(queue) == [2, 3, 7, 5]


def test_a_successor_has_the_place_of_the_leaf_before_it() -> None:
    queue, leaves, successor = LeafQueue(), [leaf(used) for used in (1, 2, 3)], leaf(2)
    for node in leaves:
        queue.add(node)
    queue.replace(leaves[1], successor)
    assert list(queue) == [leaves[0], successor, leaves[2]]
    assert leaves[1].newer is leaves[1].older is None, "it would keep others alive"


def test_however_many_were_used_since_only_some_are_looked_at() -> None:
    queue, leaves = LeafQueue(), [leaf(used) for used in range(1000)]
    for node in leaves:
        queue.add(node)
    for node in leaves:
        node.used += 1000
    leaves[40].used = 1000
    stalest = queue.stalest()
    assert stalest is leaves[0] or stalest is leaves[40]
    assert sum(node.queued >= 1000 for node in leaves) == MAX_LOOKS


def test_the_one_that_goes_is_among_the_staler_half() -> None:
    rng = random.Random(3)
    queue, leaves = LeafQueue(), list[Node]()
    for now in range(5000):
        if rng.random() < 0.5 or len(leaves) < 100:
            leaves.append(leaf(now))
            queue.add(leaves[-1])
        else:
            rng.choice(leaves).used = now
        if len(leaves) > 200:
            stalest = queue.stalest()
            assert stalest is not None
            assert sum(node.used < stalest.used for node in leaves) < 100, "fresher than half"
            leaves.remove(stalest)
            queue.remove(stalest)


def gone_in_order(queue: LeafQueue) -> list[int]:
    gone = []
    while (stalest := queue.stalest()) is not None:
        gone.append(stalest.used)
        queue.remove(stalest)
    return gone
