"""What ranks ask of a cluster, in which order they get it, and what is said when they do not."""

from __future__ import annotations

import pytest

from cluster.launcher.ray.bundles import (
    NodeRoom,
    bundle_of_a_rank,
    can_ever_fit,
    fits_one_node,
    order_of_bundles,
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
