"""What limit ranges add to pods, and which pods they forbid."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.scaling.limit_ranges import filled_in, limit_refusals
from cluster.scaling.pool_growth import PoolGrowth, growth_of
from tests.cluster.scaling.played_kubernetes import deployment, group_set, limit_range


def growth(size: int = 2, *containers: dict[str, Any]) -> PoolGrowth:
    """Of the pool `decode`, which has one worker."""
    made = deployment("decode", 1)
    made["status"] = {"replicas": 1}
    made["spec"]["template"]["spec"]["containers"] = [
        {"name": "worker", "resources": each} for each in containers
    ]
    return growth_of(made, "decode", size)


def filled(ranges: list[dict[str, Any]], resources: dict[str, Any]) -> dict[str, Any]:
    (made,) = filled_in(ranges, [growth(2, resources)])
    found: dict[str, Any] = made.pods[0]["containers"][0]["resources"]
    return found


def refusals(ranges: list[dict[str, Any]], *growths: PoolGrowth) -> list[str]:
    return limit_refusals(ranges, filled_in(ranges, growths))


DEFAULTS = {"default": {"cpu": "2", "memory": "4Gi"}, "defaultRequest": {"cpu": "1"}}


def test_what_a_container_does_not_say_is_filled_in_and_what_it_says_stays() -> None:
    ranges = [limit_range("usual", DEFAULTS)]
    assert filled(ranges, {}) == {
        "limits": {"cpu": "2", "memory": "4Gi"},
        "requests": {"cpu": "1", "memory": "4Gi"},
    }
    assert filled(ranges, {"limits": {"cpu": "8"}}) == {
        "limits": {"cpu": "8", "memory": "4Gi"},
        "requests": {"cpu": "8", "memory": "4Gi"},
    }
    assert filled(ranges, {"requests": {"cpu": "500m"}})["requests"]["cpu"] == "500m"


def test_bounds_are_defaults_where_no_other_is_said() -> None:
    ranges = [limit_range("bounds", {"max": {"cpu": "4"}, "min": {"memory": "1Gi"}})]
    assert filled(ranges, {}) == {
        "limits": {"cpu": "4"},
        "requests": {"cpu": "4", "memory": "1Gi"},
    }


def test_the_first_range_that_says_an_amount_is_heard() -> None:
    ranges = [limit_range("a", {"default": {"cpu": "1"}}), limit_range("b", DEFAULTS)]
    assert filled(ranges, {})["limits"] == {"cpu": "1", "memory": "4Gi"}


def test_ranges_of_pods_and_of_claims_add_nothing() -> None:
    ranges = [limit_range("other", {**DEFAULTS, "type": "Pod"}, {**DEFAULTS, "type": "Claim"})]
    assert filled(ranges, {}) == {}


WHOLE = {"requests": {"memory": "2Gi"}, "limits": {"memory": "8Gi"}}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"min": {"memory": "2Gi"}, "max": {"memory": "8Gi"}}, ""),
        (
            {"min": {"memory": "3Gi"}},
            "a container of decode asks for 2 GiB memory, and has to for at least 3 GiB memory",
        ),
        (
            {"max": {"memory": "6Gi"}},
            "a container of decode may take 8 GiB memory, and at most 6 GiB memory is allowed",
        ),
        ({"maxLimitRequestRatio": {"memory": "4"}}, ""),
        (
            {"maxLimitRequestRatio": {"memory": "1.5"}},
            "a container of decode may take 8 GiB memory and asks for 2 GiB memory: at most 1.5 "
            "times as much is allowed",
        ),
        (
            {"type": "Pod", "max": {"memory": "15Gi"}},
            "a pod of decode may take 16 GiB memory, and at most 15 GiB memory is allowed",
        ),
        (
            {"type": "Pod", "max": {"cpu": "4"}},
            "a pod of decode has no limit of cpu, and may have at most 4 cpu",
        ),
        (
            {"type": "Pod", "min": {"cpu": "4"}},
            "a pod of decode asks for no cpu, and has to for at least 4 cpu",
        ),
        ({"type": "PersistentVolumeClaim", "max": {"memory": "1"}}, ""),
    ],
)
def test_a_pod_past_a_bound_is_refused_with_what_it_says_and_what_it_may(
    item: dict[str, Any], text: str
) -> None:
    found = refusals([limit_range("bounds", item)], growth(2, WHOLE, WHOLE))
    assert found == ([f"limit range bounds: {text}"] if text else [])


def test_a_limit_that_is_filled_in_below_what_is_asked_for_is_a_refusal() -> None:
    ranges = [limit_range("usual", {"default": {"memory": "1Gi"}})]
    (text,) = refusals(ranges, growth(2, {"requests": {"memory": "2Gi"}}))
    assert text == (
        "a container of decode asks for 2 GiB memory, and a limit range lets it have 1 GiB memory"
    )


def test_pools_that_do_not_grow_are_not_judged_and_without_ranges_nobody_is() -> None:
    narrow = [limit_range("narrow", {"max": {"memory": "1Gi"}})]
    assert refusals(narrow, growth(1, WHOLE), growth(0, WHOLE)) == []
    odd = growth(2, {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}})
    assert refusals([], odd) == []


def test_pods_of_a_group_that_are_alike_are_told_once() -> None:
    group = growth_of(group_set("large", 0, size=3, gpus=8), "large", 1)
    narrow = [limit_range("narrow", {"max": {"nvidia.com/gpu": "4"}})]
    (text,) = refusals(narrow, group)
    assert "a container of large may take 8 nvidia.com/gpu, and at most 4" in text
