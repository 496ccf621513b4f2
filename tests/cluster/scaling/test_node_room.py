"""Free devices of nodes, for pods that may be there."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.scaling.node_fit import may_be_on
from cluster.scaling.node_room import device_refusals
from cluster.scaling.pool_growth import PoolGrowth, growth_of
from tests.cluster.scaling.played_kubernetes import deployment, gpu_node, group_set, pod_on


def growth(pool: str, size: int, *, gpus: int = 1, num_present: int = 0, **pod: Any) -> PoolGrowth:
    made = deployment(pool, 1, gpus=gpus)
    made["status"] = {"replicas": num_present}
    made["spec"]["template"]["spec"] |= pod
    return growth_of(made, pool, size)


def refusals(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]], *growths: PoolGrowth
) -> list[str]:
    return device_refusals(nodes, pods, list(growths), "default")


def test_workers_that_find_their_gpus_are_not_refused() -> None:
    nodes = [gpu_node("a", 4), gpu_node("b", 4)]
    pods = [pod_on("a", 2, pool="decode"), pod_on("b", 4, namespace="others")]
    assert refusals(nodes, pods, growth("decode", 2, gpus=2)) == []


def test_a_refusal_has_what_is_asked_what_is_free_and_for_how_many_there_is_room() -> None:
    nodes = [gpu_node("a", 8), gpu_node("b", 8)]
    pods = [pod_on("a", 6, namespace="others"), pod_on("b", 4, pool="decode")]
    (text,) = refusals(nodes, pods, growth("decode", 4, gpus=4))
    assert text == (
        "3 worker(s) of decode have no node yet, and a pod of theirs asks for 4 nvidia.com/gpu: "
        "of the 2 node(s) that it may be on 6 of 16 nvidia.com/gpu are free, room for 1"
    )


def test_gpus_of_several_nodes_are_none_for_one_pod() -> None:
    nodes = [gpu_node("a", 2), gpu_node("b", 2)]
    assert refusals(nodes, [], growth("decode", 1, gpus=2)) == []
    assert "room for 0" in refusals(nodes, [], growth("decode", 1, gpus=4))[0]


def test_who_ends_gives_its_gpus_back() -> None:
    leaving = pod_on("a", 4, namespace="others")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"
    assert refusals([gpu_node("a", 4)], [leaving], growth("decode", 1, gpus=4)) == []


def test_pools_that_are_ordered_together_do_not_get_the_same_gpus() -> None:
    nodes = [gpu_node("a", 3)]
    growths = growth("prefill", 2), growth("decode", 2)
    assert refusals(nodes, [], growths[0]) == refusals(nodes, [], growths[1]) == []
    (text,) = refusals(nodes, [], *growths)
    assert "of decode" in text and "room for 1" in text


def test_who_leaves_a_pool_makes_room_in_another_that_is_ordered_with_it() -> None:
    nodes = [gpu_node("a", 4)]
    pods = [pod_on("a", 1, pool="prefill") for _ in range(4)]
    smaller = growth("prefill", 2, num_present=4)
    assert refusals(nodes, pods, smaller, growth("decode", 2)) == []
    (text,) = refusals(nodes, pods, smaller, growth("decode", 3))
    assert "2 of 4 nvidia.com/gpu are free, room for 2" in text


def test_a_group_finds_a_place_for_each_of_its_pods_or_none() -> None:
    large = growth_of(group_set("large", 0, size=2, gpus=8), "large", 1)
    assert refusals([gpu_node("a", 8), gpu_node("b", 8)], [], large) == []
    (text,) = refusals([gpu_node("a", 8)], [], large)
    assert "of large" in text


def asking(name: str, size: int, gpus: int = 1, **requests: str) -> PoolGrowth:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": requests}
    return growth(name, size, containers=[{"resources": resources}])


def test_a_node_with_free_gpus_may_be_full_all_the_same() -> None:
    node = gpu_node("a", 8)
    other = pod_on("a", 0, namespace="others")
    other["spec"]["containers"] = [{"resources": {"requests": {"cpu": "40"}}}]
    assert refusals([node], [other], asking("decode", 3, cpu="8")) == []
    (text,) = refusals([node], [other], asking("decode", 4, cpu="8"))
    assert text == (
        "4 worker(s) of decode have no node yet, and a pod of theirs asks for 1 nvidia.com/gpu and "
        "8 cpu: of the 1 node(s) that it may be on 8 of 8 nvidia.com/gpu and 24 of 64 cpu are "
        "free, room for 3"
    )


def test_what_each_alone_has_room_for_and_not_together_is_all_told() -> None:
    nodes = [gpu_node("a", 4), gpu_node("b", 0)]
    nodes[0]["status"]["allocatable"]["memory"] = "8Gi"
    nodes[1]["status"]["allocatable"]["memory"] = "64Gi"
    (text,) = refusals(nodes, [], asking("decode", 3, memory="4Gi"))
    assert "asks for 1 nvidia.com/gpu and 4 GiB memory: " in text
    assert "4 of 4 nvidia.com/gpu and 72 of 72 GiB memory" in text.replace(" GiB of", " of")
    assert text.endswith("room for 2")


def test_a_node_has_so_many_pods() -> None:
    node = gpu_node("a", 8)
    node["status"]["allocatable"]["pods"] = "3"
    pods = [pod_on("a", 0, namespace="others") for _ in range(2)]
    (text,) = refusals([node], pods, growth("decode", 2))
    assert "8 of 8 nvidia.com/gpu and 1 of 3 pods are free, room for 1" in text


def test_cordoned_nodes_are_no_room_and_are_told() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = {"unschedulable": True, "taints": [taint]}
    nodes = [gpu_node("a", 2), gpu_node("b", 8, **cordoned)]
    nodes += [gpu_node("c", 8, labels={"gpu": "h100"}, **cordoned)]
    assert refusals(nodes, [], growth("decode", 2)) == []
    (text,) = refusals(nodes, [], growth("decode", 3))
    assert "of the 1 node(s) that it may be on (another 2 cordoned) 2 of 2" in text
    (text,) = refusals(nodes, [], growth("decode", 1, nodeSelector={"gpu": "h100"}))
    assert "of the 0 node(s) that it may be on (another 1 cordoned) 0 of 0" in text


def test_small_gaps_are_filled_before_whole_nodes_are_taken() -> None:
    nodes = [gpu_node("whole", 4), gpu_node("gap", 4)]
    pods = [pod_on("gap", 2, namespace="others")]
    assert refusals(nodes, pods, growth("prefill", 1, gpus=2), growth("decode", 1, gpus=4)) == []


def test_pods_without_devices_are_not_looked_at() -> None:
    assert refusals([], [], growth("decode", 9, gpus=0)) == []


TAINT = {"key": "nvidia.com/gpu", "value": "yes", "effect": "NoSchedule"}
AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": list(terms)}}}}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("pod", "node", "fits"),
    [
        ({}, {}, True),
        ({}, {"unschedulable": True}, False),
        ({"tolerations": [{"operator": "Exists"}]}, {"unschedulable": True}, False),
        ({"nodeSelector": {"gpu": "h100"}}, {"labels": {"gpu": "h100"}}, True),
        ({"nodeSelector": {"gpu": "h100"}}, {"labels": {"gpu": "a10"}}, False),
        ({}, {"taints": [TAINT]}, False),
        ({}, {"taints": [TAINT | {"effect": "PreferNoSchedule"}]}, True),
        (
            {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
            {"taints": [TAINT]},
            True,
        ),
        ({"tolerations": [{"operator": "Exists"}]}, {"taints": [TAINT]}, True),
        (
            {"tolerations": [{"key": "nvidia.com/gpu", "value": "no"}]},
            {"taints": [TAINT]},
            False,
        ),
        (
            {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
            {"taints": [TAINT]},
            False,
        ),
        (near(term("gpu", "In", "h100", "h200")), {"labels": {"gpu": "h200"}}, True),
        (near(term("gpu", "In", "h100"), term("gpu", "Exists")), {"labels": {"gpu": "l4"}}, True),
        (near(term("gpu", "DoesNotExist")), {"labels": {"gpu": "l4"}}, False),
        (near(term("memory", "Gt", "80")), {"labels": {"memory": "141"}}, True),
        (near(term("memory", "Gt", "80")), {"labels": {"memory": "many"}}, False),
        (near(term("gpu", "Unheard")), {"labels": {"gpu": "l4"}}, False),
        (
            near({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}),
            {},
            True,
        ),
        (
            near({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}),
            {},
            False,
        ),
    ],
)
def test_a_pod_may_be_where_both_let_it(
    pod: dict[str, Any], node: dict[str, Any], fits: bool
) -> None:
    assert may_be_on(pod, gpu_node("a", 8, **node)) is fits


def test_nodes_that_the_pods_may_not_be_on_do_not_count() -> None:
    nodes = [gpu_node("a", 8, labels={"gpu": "a10"}), gpu_node("b", 8, taints=[TAINT])]
    (text,) = refusals(nodes, [], growth("decode", 1, nodeSelector={"gpu": "h100"}))
    assert "of the 0 node(s)" in text
