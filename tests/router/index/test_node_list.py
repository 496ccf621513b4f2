"""All nodes, walked while they come and go."""

import random

import pytest

from router.index.node import Node
from router.index.node_list import NodeList


def test_a_second_walk_begins_where_nobody_was_met() -> None:
    nodes = NodeList()
    for _ in range(3):
        nodes.add(Node(None, b"", [], 0))
    broken_off = nodes.walk()
    first = next(broken_off)
    broken_off.close()
    assert len(list(nodes.walk())) == 3
    assert next(iter(nodes.walk())) is first


@pytest.mark.parametrize("seed", range(50))
def test_a_walk_meets_who_stays_and_what_was_cut_off_before_and_ends(seed: int) -> None:
    chance = random.Random(seed)
    nodes, there, must_meet, met = NodeList(), list[Node](), set[Node](), set[Node]()
    for _ in range(40):
        there.append(Node(None, b"", [], 0))
        nodes.add(there[-1])
    must_meet.update(there)
    for num_steps, node in enumerate(nodes.walk()):
        met.add(node)
        for _ in range(chance.randrange(4)):
            one, new = chance.choice(there), Node(None, b"", [], 0)
            match chance.randrange(4):
                case 0:
                    nodes.add(new)
                    there.append(new)
                case 1 if num_steps < 100:
                    nodes.add_part_of(one, new)
                    there.append(new)
                    if one in must_meet and one not in met:
                        must_meet.add(new)
                case _ if len(there) > 1:
                    nodes.remove(one)
                    there.remove(one)
                    must_meet.discard(one)
        assert sorted(node.place for node in there) == list(range(len(nodes)))
    assert met >= must_meet
