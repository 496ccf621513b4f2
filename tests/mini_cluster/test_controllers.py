"""What controllers make of what was asked for, pod by pod, in time that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.mini_cluster.children import is_going, is_ready
from tests.mini_cluster.conditions import status_of
from tests.mini_cluster.controllers import ALL, settle
from tests.mini_cluster.history import Object
from tests.mini_cluster.loopback import Loopback
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.services import SLICES, ServiceController

_NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Cluster:
    """Controllers on one node whose pods do what the test says."""

    def __init__(self) -> None:
        self.now = _NOON
        self.store = ObjectStore(clock=lambda: self.now)
        self.loopback = Loopback()
        self.services = ServiceController(self.loopback)
        self.store.create("nodes", {"kind": "Node", "metadata": {"name": "one"}})

    def settle(self) -> None:
        settle(self.store, (*ALL, self.services.reconcile), self.now)

    def pods(self) -> list[Object]:
        return self.store.select("pods")

    def report(self, matches: Callable[[Object], bool], **status: Any) -> None:
        """As a kubelet would, of each pod that is meant."""
        for pod in filter(matches, self.pods()):
            metadata = pod["metadata"]
            new = pod["status"] | {"podIP": self.loopback.pod()} | status
            self.store.set_status("pods", metadata["namespace"], metadata["name"], new)
        self.settle()

    def make_ready(self) -> None:
        """All that run."""
        since = {"lastTransitionTime": "2026-11-22T12:00:00Z"}
        ready = [{"type": "Ready", "status": "True", **since}]
        self.report(lambda pod: not is_ready(pod), phase="Running", conditions=ready)

    def end_leavers(self) -> None:
        for pod in filter(is_going, self.pods()):
            metadata = pod["metadata"]
            self.store.delete("pods", metadata["namespace"], metadata["name"], grace_s=0)
        self.settle()

    def deployment(self) -> Object:
        return self.store.get("deployments.apps", "default", "web")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.loopback.close()


def template(argument: str) -> Object:
    port = {"name": "http", "containerPort": 8000}
    container = {"name": "main", "image": "any", "args": [argument], "ports": [port]}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def an_object(kind: str, name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "any/v1", "kind": kind, "metadata": metadata, "spec": spec}


def a_deployment(replicas: int, **spec: Any) -> Object:
    selector = {"matchLabels": {"app": "web"}}
    rest = {"selector": selector, "template": template("first"), "replicas": replicas}
    return an_object("Deployment", "web", **(rest | spec))


def arguments(cluster: Cluster) -> list[str]:
    """Of all pods that were not asked to leave."""
    found = [pod for pod in cluster.pods() if not is_going(pod)]
    return sorted(pod["spec"]["containers"][0]["args"][0] for pod in found)


def change_to(cluster: Cluster, argument: str) -> None:
    def change(draft: Object) -> None:
        draft["spec"]["template"] = template(argument)

    cluster.store.edit("deployments.apps", "default", "web", change)
    cluster.settle()


def test_an_update_replaces_pods_within_its_bounds_and_says_when_it_is_done(
    cluster: Cluster,
) -> None:
    rolling = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    cluster.store.create("deployments.apps", a_deployment(2, strategy=rolling))
    cluster.settle()
    cluster.make_ready()
    change_to(cluster, "second")
    assert arguments(cluster) == ["first", "first", "second"]
    assert cluster.deployment()["status"]["updatedReplicas"] == 1
    cluster.make_ready()
    assert arguments(cluster) == ["first", "second", "second"]
    cluster.make_ready()
    cluster.end_leavers()
    assert arguments(cluster) == ["second", "second"]
    status = cluster.deployment()["status"]
    assert status["observedGeneration"] == 2
    assert status["replicas"] == status["updatedReplicas"] == status["availableReplicas"] == 2
    assert status["conditions"][1]["reason"] == "NewReplicaSetAvailable"


def test_without_surge_an_old_pod_goes_before_its_successor_comes(cluster: Cluster) -> None:
    rolling = {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    cluster.store.create("deployments.apps", a_deployment(2, strategy=rolling))
    cluster.settle()
    cluster.make_ready()
    change_to(cluster, "second")
    assert arguments(cluster) == ["first", "second"]


def test_going_back_takes_the_old_replica_set_as_a_new_revision(cluster: Cluster) -> None:
    cluster.store.create("deployments.apps", a_deployment(1))
    cluster.settle()
    (first,) = cluster.store.select("replicasets.apps")
    for argument in ("second", "first"):
        cluster.make_ready()
        change_to(cluster, argument)
    found = cluster.store.get("replicasets.apps", "default", first["metadata"]["name"])
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    assert found["spec"]["replicas"] == 1
    assert len(cluster.store.select("replicasets.apps")) == 2


def test_a_deployment_that_makes_no_progress_says_so_after_its_deadline(cluster: Cluster) -> None:
    cluster.store.create("deployments.apps", a_deployment(1, progressDeadlineSeconds=60))
    cluster.settle()
    cluster.now += timedelta(seconds=59)
    cluster.settle()
    assert status_of(cluster.deployment(), "Progressing")
    cluster.now += timedelta(seconds=2)
    cluster.settle()
    assert cluster.deployment()["status"]["conditions"][1]["reason"] == "ProgressDeadlineExceeded"


def test_fewer_replicas_leave_who_is_ready_and_a_deleted_pod_is_replaced(cluster: Cluster) -> None:
    cluster.store.create("deployments.apps", a_deployment(3))
    cluster.settle()
    ready = cluster.pods()[1]["metadata"]["name"]
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T12:00:00Z"}
    cluster.report(lambda pod: pod["metadata"]["name"] == ready, conditions=[condition])

    def shrink(draft: Object) -> None:
        draft["spec"]["replicas"] = 1

    cluster.store.edit("deployments.apps", "default", "web", shrink)
    cluster.settle()
    cluster.end_leavers()
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == [ready]
    cluster.store.delete("pods", "default", ready)
    cluster.settle()
    assert len(cluster.pods()) == 2


def test_a_deployment_takes_all_that_it_made_with_it(cluster: Cluster) -> None:
    cluster.store.create("deployments.apps", a_deployment(2))
    cluster.settle()
    cluster.store.delete("deployments.apps", "default", "web")
    cluster.end_leavers()
    assert cluster.pods() == cluster.store.select("replicasets.apps") == []


def test_a_stateful_set_starts_one_after_the_other_and_ends_backwards(cluster: Cluster) -> None:
    spec = {"replicas": 2, "template": template("first"), "serviceName": "web"}
    cluster.store.create("statefulsets.apps", an_object("StatefulSet", "web", **spec))
    cluster.settle()
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["web-0"]
    cluster.make_ready()
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["web-0", "web-1"]
    cluster.make_ready()
    cluster.store.edit(
        "statefulsets.apps", "default", "web", lambda old: old["spec"].update(replicas=1)
    )
    cluster.settle()
    assert [is_going(pod) for pod in cluster.pods()] == [False, True]


def test_a_job_tries_again_until_it_has_failed_too_often(cluster: Cluster) -> None:
    job = an_object("Job", "warm", template=template("first"), backoffLimit=1)
    cluster.store.create("jobs.batch", job)
    cluster.settle()
    for _ in range(2):
        cluster.report(lambda pod: True, phase="Failed")
    assert len(cluster.pods()) == 2
    assert status_of(cluster.store.get("jobs.batch", "default", "warm"), "Failed")


def test_a_job_whose_pod_succeeds_is_complete(cluster: Cluster) -> None:
    cluster.store.create("jobs.batch", an_object("Job", "warm", template=template("first")))
    cluster.settle()
    cluster.report(lambda pod: True, phase="Succeeded")
    assert status_of(cluster.store.get("jobs.batch", "default", "warm"), "Complete")


def test_a_service_lists_who_is_ready_and_who_leaves(cluster: Cluster) -> None:
    port = {"port": 80, "targetPort": "http"}
    service = an_object("Service", "web", selector={"app": "web"}, ports=[port])
    cluster.store.create("services", service)
    cluster.store.create("deployments.apps", a_deployment(2))
    cluster.settle()
    cluster.make_ready()
    cluster.store.delete("pods", "default", cluster.pods()[0]["metadata"]["name"])
    cluster.settle()
    (found,) = cluster.store.select(SLICES)
    assert found["ports"] == [{"name": "", "port": 8000, "protocol": "TCP"}]
    states = [tuple(each["conditions"].values()) for each in found["endpoints"]]
    assert states == [(False, True, True), (True, True, False)]
    assert cluster.store.get("services", "default", "web")["spec"]["clusterIP"].startswith("127.")


def test_a_pod_waits_for_a_node_with_devices_that_nobody_has(cluster: Cluster) -> None:
    asking = template("first")
    asking["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    status = {"allocatable": {"nvidia.com/gpu": "1"}}
    cluster.store.set_status("nodes", "", "one", status)
    cluster.store.create("deployments.apps", a_deployment(2, template=asking))
    cluster.settle()
    placed = ["nodeName" in pod["spec"] for pod in cluster.pods()]
    assert sorted(placed) == [False, True]
    waiting = cluster.pods()[placed.index(False)]
    assert waiting["status"]["conditions"][0]["reason"] == "Unschedulable"
