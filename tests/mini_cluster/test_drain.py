"""kubectl itself drains a node: it is cordoned, then evicted as far as budgets allow."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object
from tests.mini_cluster.machine import running_cluster

_IN_TIME = ("--timeout", "120s")
_LABELS = {"app": "web"}
_PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """Two pods of a Deployment, both on the first node."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        made.kubectl("cordon", "two")
        apply(made, a_deployment())
        made.kubectl("rollout", "status", "deployment/web", *_IN_TIME)
        made.kubectl("uncordon", "two")
        assert nodes(made) == {"one"}
        yield made


def a_deployment() -> Object:
    container = {"name": "web", "image": "any", "command": [sys.executable, "-c", _PROGRAM]}
    template = {"metadata": {"labels": _LABELS}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": _LABELS}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}} | {
        "spec": spec
    }


def apply(cluster: MiniCluster, made: Object) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(made))


def allow(cluster: MiniCluster, max_unavailable: int) -> None:
    """A budget."""
    spec = {"selector": {"matchLabels": _LABELS}, "maxUnavailable": max_unavailable}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    apply(cluster, made | {"spec": spec})


def pods(cluster: MiniCluster) -> list[Object]:
    return cluster.call(lambda: cluster.store.select("pods", "default"))


def nodes(cluster: MiniCluster) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods(cluster)}


def test_a_budget_that_lets_nobody_go_keeps_pods_on_their_node_which_gets_no_others(
    cluster: MiniCluster,
) -> None:
    allow(cluster, 0)
    before = {pod["metadata"]["uid"] for pod in pods(cluster)}
    done = cluster.run("kubectl", "drain", "one", "--timeout", "1s")
    assert done.returncode != 0
    assert "it would violate the pod's disruption budget" in done.stderr
    assert {pod["metadata"]["uid"] for pod in pods(cluster)} == before
    cluster.kubectl("scale", "deployment/web", "--replicas=4")
    cluster.kubectl("rollout", "status", "deployment/web", *_IN_TIME)
    later = [pod for pod in pods(cluster) if pod["metadata"]["uid"] not in before]
    assert [pod["spec"]["nodeName"] for pod in later] == ["two", "two"]


def test_pods_of_a_drained_node_go_to_the_other_one(cluster: MiniCluster) -> None:
    allow(cluster, 1)
    said = cluster.kubectl("drain", "one", *_IN_TIME)
    assert said.startswith("node/one cordoned\n")
    assert said.count(" evicted\n") == 2
    cluster.kubectl("rollout", "status", "deployment/web", *_IN_TIME)
    assert nodes(cluster) == {"two"}
