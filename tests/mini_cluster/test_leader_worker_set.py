"""Groups of pods: named, told of each other, ready together and recreated together."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest

from tests.mini_cluster.children import is_going
from tests.mini_cluster.history import Object
from tests.mini_cluster.leader_worker_set import SETS
from tests.mini_cluster.service_names import ServiceNames
from tests.mini_cluster.test_controllers import Cluster, an_object, template


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two groups of a leader and two followers."""
    made = Cluster()
    templates = {
        "size": 3,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": template("lead"),
        "workerTemplate": template("follow"),
    }
    made.store.create(
        SETS, an_object("LeaderWorkerSet", "llm", replicas=2, leaderWorkerTemplate=templates)
    )
    made.settle()
    yield made
    made.loopback.close()


def names(cluster: Cluster, *, with_leavers: bool = True) -> list[str]:
    pods = [pod for pod in cluster.pods() if with_leavers or not is_going(pod)]
    return [pod["metadata"]["name"] for pod in pods]


def uids(cluster: Cluster, prefix: str) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in cluster.pods()
        if pod["metadata"]["name"].startswith(prefix)
    }


def status(cluster: Cluster) -> Object:
    found: Object = cluster.store.get(SETS, "default", "llm")["status"]
    return found


def told(pod: Object) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"]}


GROUP = ["llm-0", "llm-0-1", "llm-0-2"]


def test_pods_have_the_names_of_their_places_and_are_told_of_their_leader(cluster: Cluster) -> None:
    assert names(cluster) == [*GROUP, "llm-1", "llm-1-1", "llm-1-2"]
    pods = {pod["metadata"]["name"]: pod for pod in cluster.pods()}
    assert told(pods["llm-1-2"]) == {
        "LWS_LEADER_ADDRESS": "llm-1.llm.default",
        "LWS_GROUP_SIZE": "3",
        "LWS_WORKER_INDEX": "2",
    }
    assert told(pods["llm-0"])["LWS_WORKER_INDEX"] == "0"
    arguments = {name: pod["spec"]["containers"][0]["args"] for name, pod in pods.items()}
    assert (arguments["llm-0"], arguments["llm-0-1"]) == (["lead"], ["follow"])
    keys = {
        name: pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-key"]
        for name, pod in pods.items()
    }
    assert len({keys[name] for name in GROUP}) == 1 and len(set(keys.values())) == 2


def test_a_leader_has_a_name_before_it_is_ready(cluster: Cluster, tmp_path: object) -> None:
    cluster.report(lambda pod: True, phase="Running")
    hosts = ServiceNames(tmp_path / "hosts")  # type: ignore[operator]
    hosts.reconcile(cluster.store, cluster.now)
    assert "llm-0.llm.default" in hosts.path.read_text()


def test_a_group_is_ready_when_all_its_pods_are(cluster: Cluster) -> None:
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T12:00:00Z"}]
    one_short = [*GROUP, "llm-1", "llm-1-1"]
    cluster.report(
        lambda pod: pod["metadata"]["name"] in one_short, phase="Running", conditions=ready
    )
    assert (status(cluster)["replicas"], status(cluster)["readyReplicas"]) == (2, 1)
    cluster.make_ready()
    assert status(cluster)["readyReplicas"] == 2


@pytest.mark.parametrize("pod", GROUP)
def test_a_container_that_was_started_again_takes_its_whole_group_along_and_no_other(
    cluster: Cluster, pod: str
) -> None:
    cluster.make_ready()
    old, others = uids(cluster, "llm-0"), uids(cluster, "llm-1")
    restarted = [{"name": "main", "restartCount": 1}]
    cluster.report(lambda each: each["metadata"]["name"] == pod, containerStatuses=restarted)
    leaving = [each["metadata"]["name"] for each in cluster.pods() if is_going(each)]
    assert leaving == GROUP
    cluster.end_leavers()
    assert names(cluster) == [*GROUP, "llm-1", "llm-1-1", "llm-1-2"]
    assert not old & uids(cluster, "llm-0") and others == uids(cluster, "llm-1")


def test_a_leader_stays_known_until_the_last_of_its_followers_is_gone(cluster: Cluster) -> None:
    cluster.make_ready()
    old = uids(cluster, "llm-0")
    cluster.store.delete("pods", "default", "llm-0-2")
    cluster.settle()
    for name in ("llm-0", "llm-0-2"):
        cluster.store.delete("pods", "default", name, grace_s=0)
        cluster.settle()
    assert [name for name in names(cluster) if name.startswith("llm-0")] == ["llm-0", "llm-0-1"]
    assert uids(cluster, "llm-0") < old, "nobody new beside one of before"
    cluster.end_leavers()
    assert [name for name in names(cluster) if name.startswith("llm-0")] == GROUP


def test_a_smaller_set_ends_the_last_leader_and_then_its_followers(cluster: Cluster) -> None:
    cluster.make_ready()
    cluster.store.edit(SETS, "default", "llm", lambda draft: draft["spec"].update(replicas=1))
    cluster.settle()
    assert [each["metadata"]["name"] for each in cluster.pods() if is_going(each)] == ["llm-1"]
    cluster.end_leavers()
    assert [each["metadata"]["name"] for each in cluster.pods() if is_going(each)] == [
        "llm-1-1",
        "llm-1-2",
    ]
    cluster.end_leavers()
    assert names(cluster) == GROUP and status(cluster)["replicas"] == 1


def test_a_new_template_replaces_groups_one_by_one_with_leader_and_followers(
    cluster: Cluster,
) -> None:
    def change(draft: Object) -> None:
        templates = deepcopy(draft["spec"]["leaderWorkerTemplate"])
        templates["workerTemplate"] = template("follow anew")
        draft["spec"]["leaderWorkerTemplate"] = templates

    cluster.make_ready()
    cluster.store.edit(SETS, "default", "llm", change)
    cluster.settle()
    assert status(cluster)["updatedReplicas"] == 0
    for updated in (1, 2):
        while any(map(is_going, cluster.pods())):
            cluster.end_leavers()
        assert status(cluster)["updatedReplicas"] == updated
        cluster.make_ready()
    followers = [pod for pod in cluster.pods() if pod["metadata"]["name"].count("-") == 2]
    assert {pod["spec"]["containers"][0]["args"][0] for pod in followers} == {"follow anew"}


def test_of_a_set_that_is_deleted_nothing_is_left(cluster: Cluster) -> None:
    cluster.make_ready()
    cluster.store.delete(SETS, "default", "llm")
    cluster.settle()
    while any(map(is_going, cluster.pods())):
        cluster.end_leavers()
    for resource in ("pods", "statefulsets.apps", "services", "controllerrevisions.apps"):
        assert cluster.store.select(resource) == [], resource
