"""helm itself, with the chart, against the API: objects alone, since nothing runs them here."""

from __future__ import annotations

import json

from tests.deploy.chart import CHART
from tests.mini_cluster.cluster import MiniCluster

_QUICKLY = ("--wait=hookOnly", "--no-hooks")


def replicas(cluster: MiniCluster, deployment: str) -> int:
    return int(
        cluster.call(lambda: cluster.store.get("deployments.apps", "default", deployment))["spec"][
            "replicas"
        ]
    )


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
