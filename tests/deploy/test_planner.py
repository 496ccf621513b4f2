"""The chart's planner: what it may, which sizes it keeps, and who else may say them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.doctor.rights import deeds_of
from planner.pool_limits import PoolLimits, limits_of
from tests.deploy.chart import Manifest, refusal, rendered

SIZED: Manifest = {"planner": {"enabled": True, "maxReplicas": {"prefill": 8, "decode": 16}}}
THREE_POOLS: Manifest = {
    "planner": {
        "enabled": True,
        "maxReplicas": {"decode": 16, "decode-wide": 2},
        "options": {"scaleTarget": 0.6, "shrinkAfterS": 900},
    },
    "pools": {
        "decode": {"replicas": 3},
        "decode-wide": {"role": "decode", "hosts": 2, "options": {"tensorParallelSize": 4}},
    },
}


def rules_of(values: Manifest) -> list[dict[str, Any]]:
    role = rendered(values).kind("Role")["demo-planner"]
    return list(role["rules"])


def test_there_is_none_by_default() -> None:
    release = rendered()
    assert "demo-planner" not in release.pods
    assert not release.kind("Role")


LOOKS = [
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["limitranges", "resourcequotas"], "verbs": ["list"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
]


def test_it_may_list_deployments_and_their_limits_and_change_the_sizes_of_its_pools() -> None:
    names = ["demo-decode", "demo-prefill"]
    assert rules_of(SIZED) == [
        *LOOKS,
        {
            "apiGroups": ["apps"],
            "resources": ["deployments/scale"],
            "verbs": ["patch"],
            "resourceNames": names,
        },
    ]
    binding = rendered(SIZED).kind("RoleBinding")["demo-planner"]
    account = rendered(SIZED).pods["demo-planner"]["spec"]["serviceAccountName"]
    assert [each["name"] for each in binding["subjects"]] == [account] == ["demo-planner"]


@pytest.mark.parametrize("values", [SIZED, THREE_POOLS])
def test_the_doctor_in_its_pod_asks_for_just_the_rights_that_it_is_given(values: Manifest) -> None:
    granted = {
        (verb, group, resource, name)
        for rule in rules_of(values)
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }
    deeds = deeds_of(rendered(values).environ("demo-planner"))
    asked = {
        (deed.verb, *place, deed.of)
        for deed in deeds
        if not deed.without
        for place in ((deed.group, deed.resource), deed.instead)
        if place is not None
    }
    needed = [deed for deed in deeds if not deed.without and deed.instead is None]
    assert {(deed.verb, deed.group, deed.resource, "") for deed in needed} <= granted
    listed = ("list", "leaderworkerset.x-k8s.io", "leaderworkersets", "")
    assert granted - {listed} <= asked


def test_it_sees_nodes_and_pods_of_the_cluster_where_that_is_asked_for() -> None:
    assert not rendered(SIZED).kind("ClusterRole")
    release = rendered({"planner": {**SIZED["planner"], "seesNodes": True}})
    (name, role) = next(iter(release.kind("ClusterRole").items()))
    assert name == "default-demo-planner", "of two releases each has its own"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]
    binding = release.kind("ClusterRoleBinding")[name]
    assert binding["roleRef"]["name"] == name
    assert binding["subjects"] == release.kind("RoleBinding")["demo-planner"]["subjects"]


def test_groups_are_scaled_by_their_own_kind() -> None:
    group = "leaderworkerset.x-k8s.io"
    assert rules_of(THREE_POOLS) == [
        *LOOKS,
        {
            "apiGroups": ["apps"],
            "resources": ["deployments/scale"],
            "verbs": ["patch"],
            "resourceNames": ["demo-decode"],
        },
        {"apiGroups": [group], "resources": ["leaderworkersets"], "verbs": ["list"]},
        {
            "apiGroups": [group],
            "resources": ["leaderworkersets/scale"],
            "verbs": ["patch"],
            "resourceNames": ["demo-decode-wide"],
        },
    ]


def test_a_pool_is_kept_between_its_replicas_and_the_most_that_the_planner_was_given() -> None:
    environ = rendered(THREE_POOLS).environ("demo-planner")
    assert limits_of(environ["SPLITSERVE_POOLS"]) == (
        PoolLimits("decode", 3, 16),
        PoolLimits("decode-wide", 1, 2),
    )
    assert environ["SPLITSERVE_SCALE_TARGET"] == "0.6"
    assert environ["SPLITSERVE_SHRINK_AFTER_S"] == "900"


def test_an_upgrade_says_no_size_of_a_pool_that_the_planner_sizes() -> None:
    release = rendered(THREE_POOLS)
    assert "replicas" not in release.kind("Deployment")["demo-decode"]["spec"]
    assert "replicas" not in release.kind("LeaderWorkerSet")["demo-decode-wide"]["spec"]
    assert release.kind("Deployment")["demo-prefill"]["spec"]["replicas"] == 1
    tried = {"planner": {**SIZED["planner"], "options": {"dryRun": True}}}
    assert rendered(tried).kind("Deployment")["demo-prefill"]["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"worker": {"autoscaling": {"enabled": True}}}, "'/worker/autoscaling/enabled'"),
        (
            {"pools": {"decode": {"autoscaling": {"enabled": True}}}},
            "'/pools/decode/autoscaling/enabled'",
        ),
        ({"planner": {"enabled": True}}, "'/planner/maxReplicas'"),
        ({"planner": {"enabled": True, "maxReplicas": {"other": 2}}}, "there is no such pool"),
        ({"planner": {"options": {"scaleTarget": 0}}}, "'/planner/options/scaleTarget'"),
        ({"planner": {"options": {"pools": "decode=1..2"}}}, "pools"),
    ],
)
def test_two_who_size_pools_and_pools_that_are_not_there_are_refused(
    values: Manifest, said: str
) -> None:
    given = values if "planner" in values else {**SIZED, **values}
    assert said in refusal(given)


def test_two_planners_are_never_there_at_once() -> None:
    spec = rendered(SIZED).kind("Deployment")["demo-planner"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
