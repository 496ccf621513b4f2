"""helm itself, with the chart, against the API: objects alone, since nothing runs them here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.deploy.chart import CHART
from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object
from tests.mini_cluster.leader_worker_definition import LEADER_WORKER_SETS
from tests.mini_cluster.leader_worker_set import SETS
from tests.mini_cluster.merge import json_merge

_QUICKLY = ("--wait=hookOnly", "--no-hooks")


def replicas(cluster: MiniCluster, name: str, resource: str = "deployments.apps") -> int:
    found = cluster.call(lambda: cluster.store.get(resource, "default", name))
    return int(found["spec"]["replicas"])


def everything(cluster: MiniCluster) -> list[str]:
    """Kind and name of all that lies in the namespace."""
    there = cluster.call(
        lambda: [
            (resource.kind, found["metadata"]["name"])
            for resource in cluster.server.api.resources.all()
            if resource.is_namespaced
            for found in cluster.store.select(resource.name, "default")
        ]
    )
    return sorted(f"{kind} {name}" for kind, name in there)


@contextmanager
def release(cluster: MiniCluster, values: Object | None = None) -> Iterator[None]:
    """Called `demo`, for a while."""
    words = ("install", "demo", str(CHART), *_QUICKLY, "--values", "-")
    cluster.helm(*words, stdin=json.dumps(values or {}))
    try:
        yield
    finally:
        cluster.helm("uninstall", "demo")


def upgrade(cluster: MiniCluster, *words: str) -> None:
    cluster.helm("upgrade", "demo", str(CHART), *_QUICKLY, *words)


def upgraded(cluster: MiniCluster, values: Object) -> None:
    words = ("upgrade", "demo", str(CHART), *_QUICKLY, "--values", "-")
    cluster.helm(*words, stdin=json.dumps(values))


def scale(
    cluster: MiniCluster, name: str, number: int, resource: str = "apps/v1 deployments"
) -> None:
    """As `splitserve scale` and autoscalers do it: a patch of the scale."""
    group, plural = resource.split()
    path = f"/apis/{group}/namespaces/default/{plural}/{name}/scale"
    headers = {"Content-Type": "application/merge-patch+json"}
    with cluster.client() as client:
        answer = client.patch(
            path,
            params={"fieldManager": "operator"},
            headers=headers,
            json={"spec": {"replicas": number}},
        )
    assert answer.json()["spec"] == {"replicas": number}


def test_helm_installs_upgrades_rolls_back_and_uninstalls_the_chart_and_leaves_nothing(
    cluster: MiniCluster,
) -> None:
    before = everything(cluster)
    cluster.helm("install", "demo", str(CHART), *_QUICKLY)
    assert {"Deployment demo-router", "Service demo"} <= set(everything(cluster))
    (listed,) = json.loads(cluster.helm("list", "-o", "json"))
    assert (listed["name"], listed["status"], listed["revision"]) == ("demo", "deployed", "1")

    cluster.helm("upgrade", "demo", str(CHART), *_QUICKLY, "--set", "router.replicas=3")
    assert replicas(cluster, "demo-router") == 3
    assert "STATUS: deployed\nREVISION: 2\n" in cluster.helm("status", "demo")
    cluster.helm("rollback", "demo", "1", *_QUICKLY)
    assert replicas(cluster, "demo-router") == 1

    cluster.helm("uninstall", "demo")
    assert everything(cluster) == before


def test_token_and_key_are_made_once_and_stay_through_upgrades_and_a_rollback(
    cluster: MiniCluster,
) -> None:
    def secrets() -> Object:
        names = ("demo-fleet", "demo-api-keys")
        return {
            name: cluster.call(
                lambda name=name: cluster.store.get("secrets", "default", name)["data"]
            )
            for name in names
        }

    with release(cluster):
        made = secrets()
        upgrade(cluster, "--set", "worker.shm=1Gi")
        assert secrets() == made
        cluster.helm("rollback", "demo", "1", *_QUICKLY)
        assert secrets() == made
    with release(cluster):
        assert secrets()["demo-fleet"] != made["demo-fleet"], "another release has its own"


def test_a_pool_that_was_scaled_keeps_its_size_through_upgrades_until_the_values_say_another(
    cluster: MiniCluster,
) -> None:
    with release(cluster):
        scale(cluster, "demo-decode", 3)
        upgrade(cluster, "--set", "worker.shm=1Gi")
        upgrade(cluster)
        assert replicas(cluster, "demo-decode") == 3
        scale(cluster, "demo-decode", 0)
        upgrade(cluster)
        assert replicas(cluster, "demo-decode") == 0
        wanted = ("--set", "pools.decode.replicas=5")
        refused = cluster.run("helm", "upgrade", "demo", str(CHART), *_QUICKLY, *wanted)
        assert '"operator" with subresource "scale"' in refused.stderr, "who else has said a size"
        upgrade(cluster, *wanted, "--force-conflicts")
        assert replicas(cluster, "demo-decode") == 5
        upgrade(cluster, "--set", "pools.decode.replicas=2")
        assert replicas(cluster, "demo-decode") == 2, "nobody else has said one since"


def test_a_number_that_the_operator_has_scaled_to_is_no_conflict_in_the_values(
    cluster: MiniCluster,
) -> None:
    with release(cluster):
        scale(cluster, "demo-decode", 3)
        upgrade(cluster, "--set", "pools.decode.replicas=3")
        assert replicas(cluster, "demo-decode") == 3


@pytest.mark.parametrize(
    "sized",
    [
        {"planner": {"enabled": True, "maxReplicas": {"decode": 8}}},
        {"router": {"autoscaling": {"enabled": True}}},
    ],
    ids=["planner", "routers"],
)
def test_whoever_sizes_from_now_on_finds_what_was_there_and_no_upgrade_takes_it_back(
    cluster: MiniCluster, sized: Object
) -> None:
    values = {"router": {"replicas": 3}, "pools": {"decode": {"replicas": 3}}}
    name = "demo-decode" if "planner" in sized else "demo-router"
    with release(cluster, values):
        upgraded(cluster, json_merge(values, sized))
        assert replicas(cluster, name) == 3
        upgraded(cluster, json_merge(values, sized))
        assert replicas(cluster, name) == 3, "still helm's alone"
        scale(cluster, name, 6)
        upgraded(cluster, json_merge(values, sized))
        scale(cluster, name, 7)
        upgraded(cluster, json_merge(values, sized))
        assert replicas(cluster, name) == 7
        upgraded(cluster, values)
        assert replicas(cluster, name) == 7, "where it was left by whom sized it"


def test_a_pool_of_groups_keeps_its_size_as_others_do(cluster: MiniCluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(LEADER_WORKER_SETS))
    cluster.kubectl(
        "wait", "--for=condition=Established", "crd/leaderworkersets.leaderworkerset.x-k8s.io"
    )
    decode: Object = {"hosts": 2, "options": {"tensorParallelSize": 2}}
    sets = "leaderworkerset.x-k8s.io/v1 leaderworkersets"
    with release(cluster, {"pools": {"decode": decode}}):
        scale(cluster, "demo-decode", 3, sets)
        upgraded(cluster, {"pools": {"decode": decode | {"shm": "1Gi"}}})
        assert replicas(cluster, "demo-decode", SETS) == 3
