"""Disruption budgets and pools that are made smaller."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.scaling.budgets import PoolShrinking, budget_refusals
from cluster.scaling.scaler import PoolState
from tests.cluster.scaling.played_kubernetes import budget


def shrinking(
    before: int, size: int, *, num_ready: int | None = None, pods: int = 1
) -> PoolShrinking:
    state = PoolState(
        name="decode",
        num_wanted=before,
        num_present=before,
        num_ready=before if num_ready is None else num_ready,
        generation=1,
    )
    labels = {"splitserve/pool": "decode"}
    return PoolShrinking(state=state, size=size, pods_of_a_worker=pods, labels=labels)


@pytest.mark.parametrize(
    ("spec", "size", "is_allowed"),
    [
        ({"minAvailable": 3}, 3, True),
        ({"minAvailable": 3}, 2, False),
        ({"minAvailable": "100%"}, 2, True),  # of what is wanted then
        ({"maxUnavailable": 1}, 1, True),
        ({"maxUnavailable": 0}, 1, True),
        ({}, 1, True),
    ],
)
def test_what_a_budget_keeps_is_counted_of_what_is_wanted_afterwards(
    spec: dict[str, Any], size: int, is_allowed: bool
) -> None:
    texts = budget_refusals([budget("chat", "decode", **spec)], shrinking(4, size))
    assert (texts == []) is is_allowed


def test_a_refusal_has_the_budget_and_its_numbers() -> None:
    (text,) = budget_refusals([budget("chat", "decode", minAvailable=3)], shrinking(4, 2))
    assert text == (
        "disruption budget chat keeps 3 healthy pods: of 4 now 2 would be left, without 2 of decode"
    )


def test_workers_that_are_not_ready_go_first_and_are_no_concern_of_a_budget() -> None:
    kept = [budget("chat", "decode", minAvailable=3)]
    assert budget_refusals(kept, shrinking(4, 2, num_ready=2)) == []
    assert budget_refusals(kept, shrinking(4, 1, num_ready=2))


def test_healthy_workers_of_a_pool_that_lacks_some_are_kept() -> None:
    kept = [budget("chat", "decode", maxUnavailable=1)]
    assert budget_refusals(kept, shrinking(6, 3, num_ready=4)) == []
    assert budget_refusals(kept, shrinking(8, 6, num_ready=3)) == []
    status = {"expectedPods": 8, "currentHealthy": 5}
    wide = kept[0] | {"status": status}
    assert budget_refusals([wide], shrinking(4, 2))


def test_another_pools_budget_says_nothing_and_one_of_the_whole_release_counts_its_own() -> None:
    assert budget_refusals([budget("other", "prefill", minAvailable=9)], shrinking(4, 1)) == []
    whole = budget("whole", "decode", minAvailable=7)
    whole["spec"]["selector"] = {}
    whole["status"] = {"expectedPods": 8, "currentHealthy": 8}
    assert budget_refusals([whole], shrinking(4, 3)) == []
    assert budget_refusals([whole], shrinking(4, 2))


def test_a_budget_without_a_selector_covers_nobody() -> None:
    nobody = {"metadata": {"name": "none"}, "spec": {"minAvailable": 9}}
    assert budget_refusals([nobody], shrinking(4, 1)) == []


def test_every_pod_of_a_group_counts() -> None:
    kept = [budget("chat", "decode", minAvailable=5)]
    assert budget_refusals(kept, shrinking(3, 2, pods=4)) == []
    (text,) = budget_refusals(kept, shrinking(3, 1, pods=4))
    assert "of 12 now 4 would be left, without 8 of decode" in text
