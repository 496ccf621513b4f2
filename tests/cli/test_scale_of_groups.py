"""`scale` and `rollout` through the real client, where a pool's workers are groups of pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.scaling.groups import HELD_PARTITION
from tests.cli.test_scale_on_kubernetes import Release, deployment
from tests.mini_cluster.cluster import MiniCluster, mini_cluster
from tests.mini_cluster.leader_worker_definition import LEADER_WORKER_SETS
from tests.mini_cluster.leader_worker_set import SETS

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Groups(Release):
    """With a third pool, of one group of two pods."""

    def __init__(self, cluster: MiniCluster, home: Path) -> None:
        super().__init__(cluster, home)
        self._create("customresourcedefinitions.apiextensions.k8s.io", LEADER_WORKER_SETS)
        self._create(SETS, group_set())
        self.settle()

    def groups(self) -> Any:
        return self._cluster.call(
            lambda: self._cluster.store.get(SETS, "default", "chat-large")["spec"]
        )

    def pods(self) -> list[str]:
        found = self._cluster.call(lambda: self._cluster.store.select("pods", "default"))
        names = [pod["metadata"]["name"] for pod in found]
        return [name for name in names if name.startswith("chat-large")]


def group_set() -> dict[str, Any]:
    made = deployment("large")
    template = made["spec"]["template"]
    rolling = {"maxUnavailable": 1, "maxSurge": 0}
    made["spec"] = {
        "replicas": 1,
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling},
        "leaderWorkerTemplate": {
            "size": 2,
            "leaderTemplate": template,
            "workerTemplate": template,
        },
    }
    return made | {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Groups]:
    with mini_cluster(tmp_path) as cluster:
        yield Groups(cluster, tmp_path)


def test_a_pool_of_groups_is_scaled_by_whole_groups_beside_pools_of_pods(release: Groups) -> None:
    assert release.run("scale", "large=3", "--dry-run").returncode == 0
    assert release.groups()["replicas"] == 1
    done = release.run("scale", "large=2", "prefill=2", "--yes")
    assert done.returncode == 0, done.stderr
    assert (release.groups()["replicas"], release.spec("prefill")["replicas"]) == (2, 2)
    release.settle()
    assert release.pods() == ["chat-large-0", "chat-large-0-1", "chat-large-1", "chat-large-1-1"]


@pytest.mark.minutes
def test_a_rollout_of_groups_is_shown_held_and_goes_on_and_is_not_undone(release: Groups) -> None:
    assert "large" in release.run("rollout", "status").stdout
    assert release.run("rollout", "pause", "large", "--yes").returncode == 0
    rolling = release.groups()["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling == {"maxUnavailable": 1, "maxSurge": 0, "partition": HELD_PARTITION}
    assert "on hold" in release.run("rollout", "status", "large").stdout
    assert release.run("rollout", "resume", "large", "--yes").returncode == 0
    rolling = release.groups()["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert rolling["partition"] == 0
    undone = release.run("rollout", "undo", "large", "--yes")
    assert undone.returncode == 4 and "helm rollback" in undone.stderr


def test_who_may_not_list_groups_scales_other_pools_and_is_told_the_verb(release: Groups) -> None:
    token = release.looker()
    shown = release.run("rollout", "status", "prefill", token=token)
    assert "prefill" in shown.stdout
    refused = release.run("scale", "large=2", "--yes", token=token)
    assert refused.returncode == 4
    assert "cannot list" in refused.stderr and "leaderworkersets" in refused.stderr
