"""What ranks ask of a cluster, in which order they get it, and what is said when they do not."""

from __future__ import annotations

import pytest

from cluster.launcher.ray.bundles import (
    NodeRoom,
    bundle_of_a_rank,
    can_ever_fit,
    fits_one_node,
    order_of_bundles,
    selectors_of,
    table_of_what_is_asked,
)


def node(name: str, free: float = 0.0, **total: float) -> NodeRoom:
    return NodeRoom(name, f"10.0.0.{name}", total, dict.fromkeys(total, free))


def test_a_rank_asks_for_a_gpu_or_for_the_operators_own_resource_or_for_a_core() -> None:
    plain, marked = node("1", CPU=8, GPU=4), node("2", CPU=8, splitserve_rank=3)
    assert bundle_of_a_rank([plain], uses_gpus=True) == {"GPU": 1}
    assert bundle_of_a_rank([plain], uses_gpus=False) == {"CPU": 1}
    assert bundle_of_a_rank([plain, marked], uses_gpus=False) == {"splitserve_rank": 1}


@pytest.mark.parametrize(
    ("num_ranks", "first", "one_node", "ever"),
    [
        (2, "1", True, True),
        (3, "1", False, True),
        (3, None, True, True),
        (5, "1", False, True),
        (6, None, False, False),
        (1, "3", False, False),
        (1, "gone", False, False),
    ],
)
def test_room_is_judged_by_what_nodes_have_when_they_are_empty(
    num_ranks: int, first: str | None, one_node: bool, ever: bool
) -> None:
    nodes = [node("1", CPU=2), node("2", CPU=3.5), node("3", GPU=8)]
    bundles = [{"CPU": 1.0}] * num_ranks
    assert fits_one_node(bundles, nodes, first) == one_node
    assert can_ever_fit(bundles, nodes, first) == ever


def worker_node(name: str, **total: float) -> NodeRoom:
    return NodeRoom(name, f"10.0.0.{name}", total, total, True)


def test_what_a_worker_has_brought_along_takes_its_own_ranks_and_nobody_elses() -> None:
    nodes = [worker_node("1", GPU=1), worker_node("2", GPU=2), node("3", GPU=2)]
    assert can_ever_fit([{"GPU": 1.0}] * 3, nodes, "1")
    assert not can_ever_fit([{"GPU": 1.0}] * 4, nodes, "1"), "the second node is another's"
    assert can_ever_fit([{"GPU": 1.0}] * 4, nodes, "2")
    assert not can_ever_fit([{"GPU": 1.0}] * 3, nodes, None)
    assert fits_one_node([{"GPU": 1.0}] * 2, nodes, None)
    assert not fits_one_node([{"GPU": 1.0}] * 2, nodes[:2], None)


def test_ranks_stay_with_their_worker_as_far_as_it_has_room_and_avoid_other_workers() -> None:
    nodes = [worker_node("1", GPU=1), worker_node("2", GPU=2), node("3", GPU=2)]
    ranks = [{"GPU": 1.0}] * 3
    elsewhere = {"splitserve-worker": "!own"}
    here = {"ray.io/node-id": "2"}
    assert selectors_of(ranks, nodes, "2") == [here, here, elsewhere]
    assert selectors_of(ranks[:1], nodes, "2") == [here]
    assert selectors_of(ranks, nodes, "3") == [{"ray.io/node-id": "3"}, elsewhere, elsewhere]
    assert selectors_of(ranks, nodes, None) == [elsewhere] * 3
    table = table_of_what_is_asked(ranks, nodes, "2").splitlines()
    assert [line.split("  ")[-1] for line in table[1:4]] == ["on this node"] * 2 + ["anywhere"]
    assert ", another worker's" in table[5] and ", this node" in table[6]


def test_ranks_are_ordered_by_node_after_the_conductor_and_its_neighbours() -> None:
    assert order_of_bundles(["b"]) == (0,)
    assert order_of_bundles(["b", "c", "a", "b", "a", "c"]) == (0, 3, 2, 4, 1, 5)


def test_the_table_has_a_row_for_each_bundle_and_each_node() -> None:
    nodes = [node("1", free=1, CPU=4, splitserve_rank=2), node("2", CPU=4)]
    table = table_of_what_is_asked([{"splitserve_rank": 1.0}] * 2, nodes, "1")
    assert table.splitlines() == [
        "  bundle  asked              where",
        "  0       splitserve_rank 1  on this node",
        "  1       splitserve_rank 1  anywhere",
        "  node                     free                      of",
        "  10.0.0.1 (1), this node  splitserve_rank 1, CPU 1  splitserve_rank 2, CPU 4",
        "  10.0.0.2 (2)             splitserve_rank 0, CPU 0  splitserve_rank 0, CPU 4",
    ]
