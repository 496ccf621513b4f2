"""What quotas leave for new pods."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.scaling.pool_growth import PoolGrowth, growth_of
from cluster.scaling.quotas import quota_refusals
from tests.cluster.scaling.played_kubernetes import deployment, group_set, quota

GPUS = "requests.nvidia.com/gpu"


def growth(pool: str, before: int, size: int, *, gpus: int = 1) -> PoolGrowth:
    made = deployment(pool, before, gpus=gpus)
    made["status"] = {"replicas": before}
    return growth_of(made, pool, size)


def test_what_fits_is_not_refused_to_the_last_piece() -> None:
    gpus = quota("gpus", {GPUS: "8"}, {GPUS: "6"})
    assert quota_refusals([gpus], [growth("decode", 6, 8)]) == []


def test_a_refusal_has_the_quota_the_numbers_and_for_how_many_there_is_room() -> None:
    gpus = quota("gpus", {GPUS: "8", "pods": "100"}, {GPUS: "5", "pods": "9"})
    (text,) = quota_refusals([gpus], [growth("decode", 2, 5, gpus=2)])
    assert text == (
        f"quota gpus: 5 of 8 {GPUS} are used, and 3 new of decode ask for 6 more: "
        "room for 1 worker(s)"
    )


def test_pools_that_are_ordered_together_are_judged_together() -> None:
    pods = quota("small", {"pods": "10"}, {"pods": "7"})
    growths = [growth("prefill", 1, 3), growth("decode", 1, 3)]
    assert quota_refusals([pods], growths[:1]) == quota_refusals([pods], growths[1:]) == []
    (text,) = quota_refusals([pods], growths)
    assert "2 new of prefill and 2 new of decode ask for 4 more" in text


def test_workers_that_were_wanted_and_have_no_pods_yet_count_as_new() -> None:
    made = deployment("decode", 4, gpus=1)
    made["status"] = {"replicas": 2}
    gpus = quota("gpus", {GPUS: "4"}, {GPUS: "2"})
    (text,) = quota_refusals([gpus], [growth_of(made, "decode", 5)])
    assert "3 new of decode" in text


def test_who_leaves_a_pool_makes_room_in_another_that_is_ordered_with_it() -> None:
    gpus = quota("gpus", {GPUS: "6"}, {GPUS: "6"})
    growing = growth("decode", 2, 4)
    assert quota_refusals([gpus], [growth("prefill", 4, 2), growing]) == []
    (text,) = quota_refusals([gpus], [growth("prefill", 4, 3), growing])
    assert "2 new of decode ask for 1 more" in text


def test_a_group_asks_for_all_its_pods() -> None:
    made = group_set("large", 1, size=3, gpus=8)
    made["status"] = {"replicas": 1}
    quotas = [quota("a", {"pods": "5"}, {"pods": "3"}), quota("b", {GPUS: "40"}, {GPUS: "24"})]
    texts = quota_refusals(quotas, [growth_of(made, "large", 2)])
    assert [text.partition(":")[0] for text in texts] == ["quota a", "quota b"]


def test_memory_is_told_in_gib() -> None:
    made = deployment("decode", 1)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"memory": "40Gi", "cpu": "500m"}}
    hard = {"requests.memory": "100Gi", "requests.cpu": "1"}
    room = quota("ram", hard, {"requests.memory": "80Gi", "requests.cpu": "250m"})
    (text,) = quota_refusals([room], [growth_of(made, "decode", 1)])
    assert "80 GiB of 100 GiB requests.memory are used" in text and "40 GiB more" in text


def test_a_quota_that_nobody_has_counted_yet_has_nothing_used() -> None:
    fresh = {"metadata": {"name": "new"}, "spec": {"hard": {"pods": "1"}}}
    assert quota_refusals([fresh], [growth("decode", 0, 1)]) == []
    assert quota_refusals([fresh], [growth("decode", 0, 2)])


def test_a_quota_that_is_exceeded_already_forbids_what_asks_for_more_of_it_alone() -> None:
    over = quota("gpus", {GPUS: "2"}, {GPUS: "4"})
    assert quota_refusals([over], [growth("decode", 1, 2, gpus=0)]) == []
    (text,) = quota_refusals([over], [growth("decode", 1, 2)])
    assert "room for 0" in text


def scoped(**spec: Any) -> dict[str, Any]:
    return quota("scoped", {"pods": "0"}, {}, **spec)


@pytest.mark.parametrize(
    ("spec", "is_counted"),
    [
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
    ],
)
def test_a_quota_with_scopes_counts_the_pods_that_are_in_all_of_them(
    spec: dict[str, Any], is_counted: bool
) -> None:
    assert bool(quota_refusals([scoped(**spec)], [growth("decode", 0, 1)])) is is_counted


@pytest.mark.parametrize(
    ("operator", "values", "is_counted"),
    [
        ("In", ["high"], True),
        ("In", ["low"], False),
        ("NotIn", ["low"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_a_quota_of_a_priority_class_counts_pods_of_that_class(
    operator: str, values: list[str], is_counted: bool
) -> None:
    term = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    made = deployment("decode", 0, gpus=1)
    made["spec"]["template"]["spec"]["priorityClassName"] = "high"
    of_class = scoped(scopeSelector={"matchExpressions": [term]})
    assert bool(quota_refusals([of_class], [growth_of(made, "decode", 1)])) is is_counted


def test_a_quota_of_cores_or_memory_asks_each_container_for_its_own_amount() -> None:
    limits = quota("limits", {"limits.memory": "64Gi", "pods": "9"}, {"pods": "2"})
    (text,) = quota_refusals([limits], [growth("decode", 2, 3)])
    assert text == (
        "quota limits: each container has to say limits.memory, and one of decode does not"
    )
    assert quota_refusals([limits], [growth("decode", 3, 2)]) == [], "who leaves says nothing"
    devices = quota("gpus", {"requests.amd.com/gpu": "4"}, {})
    assert quota_refusals([devices], [growth("decode", 2, 3)]) == [], "of devices it asks nobody"
